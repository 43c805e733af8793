"""Names that other libraries have lead to the names that are here; tests/jax has those of JAX."""

from __future__ import annotations

import pytest

import amdattn
from amdattn import elsewhere
from tests.support.elsewhere import NAMES, named


def test_what_is_named_is_there() -> None:
    """Each error names something, and all that it names exists."""
    for name in (*NAMES, *elsewhere.known()):
        if not hasattr(amdattn, name):
            for owner, target in named(amdattn, name):
                assert owner == "amdattn" and hasattr(amdattn, target)


def test_what_is_nowhere() -> None:
    """Other names get no advice."""
    with pytest.raises(AttributeError, match=r"^module 'amdattn' has no attribute 'conv2d'$"):
        _ = amdattn.conv2d
    assert not hasattr(amdattn, "__wrapped__")
