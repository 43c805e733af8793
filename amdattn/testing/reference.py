"""The former place of the references, which `amdattn.testing` has; names from here warn."""

from __future__ import annotations

import warnings
from typing import Any

from amdattn.ops.attention import reference

_MOVED = ("attention", "attention_rounded")


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    text = f"amdattn.testing.reference.{name} is amdattn.testing.{name}"
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    return getattr(reference, name)
