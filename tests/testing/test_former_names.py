"""Public names that moved are where they were, and say where they are."""

import importlib

import pytest

import amdattn


@pytest.mark.parametrize("name", ["attention", "attention_rounded"])
def test_references(name: str) -> None:
    module = importlib.import_module("amdattn.testing.reference")
    with pytest.warns(DeprecationWarning, match=f"reference.{name} is amdattn.testing.{name}"):
        found = getattr(module, name)
    assert found is getattr(amdattn.testing, name)
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        _ = module.other
