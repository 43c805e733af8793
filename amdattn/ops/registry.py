"""The one list of operations, which selftest, check, bench, tune and explain use."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import Any

from amdattn.op.operation import Operation

# Name -> module with its OPERATION.
_HOME = {
    "attention": "amdattn.ops.attention.cases",
    "attention_backward": "amdattn.ops.attention_backward.cases",
    "cascade": "amdattn.ops.cache_attention.cascade_cases",
    "decode": "amdattn.ops.cache_attention.decode_cases",
    "embedding": "amdattn.ops.embedding.cases",
    "gated_activation": "amdattn.ops.gated.cases",
    "gemm": "amdattn.ops.gemm.cases",
    "layer_norm": "amdattn.ops.layer_norm.cases",
    "layer_norm_backward": "amdattn.ops.layer_norm_backward.cases",
    "merge_state": "amdattn.ops.merge.cases",
    "prefill": "amdattn.ops.cache_attention.prefill_cases",
    "quantize_fp8": "amdattn.ops.quantize.cases",
    "rms_norm": "amdattn.ops.norm.cases",
    "rms_norm_backward": "amdattn.ops.norm_backward.cases",
    "rotary": "amdattn.ops.rotary.cases",
    "sample": "amdattn.ops.sample.cases",
}


def names() -> tuple[str, ...]:
    """The names of all operations."""
    return tuple(_HOME)


@functools.cache
def operation(name: str) -> Operation[Any, Any]:
    """The operation of this name.

    Raises
    ------
    ValueError
        There is no such operation.
    """
    if name not in _HOME:
        raise ValueError(f"operation={name!r} must be one of {', '.join(_HOME)}")
    found: Operation[Any, Any] = import_module(_HOME[name]).OPERATION
    return found


def operations() -> tuple[Operation[Any, Any], ...]:
    """All operations."""
    return tuple(map(operation, _HOME))
