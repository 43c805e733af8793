"""amdattn in JAX: the same kernels under `jax.jit`, over meshes, and in models that train.

On ROCm devices kernels run through XLA's FFI on XLA's own stream, and on JAX's CPU devices through
the virtual device. `docs/jax.md` lists compatible versions, and what runs where.
"""

from __future__ import annotations

from typing import Any

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ModuleNotFoundError(
        'amdattn.jax needs JAX, which is not installed: pip install "amdattn[jax]"', name="jax"
    ) from None

from amdattn.jax.attention import flash_attn_func, flash_attn_varlen_func
from amdattn.jax.context_parallel import context_parallel_attention, zigzag_order
from amdattn.jax.decode import flash_attn_with_kvcache
from amdattn.jax.dot_product_attention import dot_product_attention
from amdattn.jax.elementwise import gelu_and_mul, silu_and_mul
from amdattn.jax.layer_norm import layer_norm
from amdattn.jax.lowering_device import lowering_for
from amdattn.jax.operations import merge_state, rms_norm
from amdattn.jax.primitive import call
from amdattn.jax.products import gemm, gemm_nt, grouped_gemm
from amdattn.jax.targets import library as _library
from amdattn.jax.tokens import apply_rotary_emb, argmax, embedding, sample

_library()  # so that programs that another process has exported find their handler

__all__ = [
    "apply_rotary_emb",
    "argmax",
    "call",
    "context_parallel_attention",
    "dot_product_attention",
    "embedding",
    "flash_attn_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "gelu_and_mul",
    "gemm",
    "gemm_nt",
    "grouped_gemm",
    "layer_norm",
    "lowering_for",
    "merge_state",
    "rms_norm",
    "sample",
    "silu_and_mul",
    "zigzag_order",
]


def __getattr__(name: str) -> Any:
    import amdattn
    from amdattn import elsewhere

    raise elsewhere.missing(name, __name__, __all__, amdattn.__all__)
