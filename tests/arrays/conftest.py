"""What tests of arrays share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True, scope="module")
def only_garbage_of_these_tests() -> None:
    """Many of them search for garbage: not through all that the run has made and kept before."""
    gc.collect()
    gc.freeze()
