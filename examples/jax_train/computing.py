"""What computes a model: this package's kernels, or XLA in bfloat16 or in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from amdattn.jax import dot_product_attention, gemm_nt, rms_norm


class Computing(NamedTuple):
    """Functions that models are made of, and the type of what passes between them."""

    dtype: Any
    attention: Callable[..., jax.Array]  # (q, k, v, is_causal=) of (rows, length, heads, dim)
    linear: Callable[..., jax.Array]  # (x, weight, bias=, activation=, out_dtype=): x @ weight^T
    add_and_norm: Callable[..., Any]  # (x, weight, residual): RMS norm of the sum, and the sum


def _attention_xla(
    q: jax.Array, k: jax.Array, v: jax.Array, *, is_causal: bool = False
) -> jax.Array:
    return jax.nn.dot_product_attention(q, k, v, is_causal=is_causal, implementation="xla")


def _linear_xla(
    x: jax.Array,
    weight: jax.Array,
    bias: Any = None,
    *,
    activation: str | None = None,
    out_dtype: Any = None,
) -> jax.Array:
    out = jnp.einsum("...k,nk->...n", x, weight, preferred_element_type=jnp.float32)
    if bias is not None:
        out = out + bias
    if activation == "gelu":
        out = jax.nn.gelu(out, approximate=False)
    elif activation == "silu_and_mul":
        gate, factor = jnp.split(out, 2, axis=-1)
        out = jax.nn.silu(gate) * factor
    return out.astype(out_dtype or x.dtype)


def _add_and_norm_xla(x: jax.Array, weight: jax.Array, residual: jax.Array) -> Any:
    added = x + residual
    rows = added.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.square(rows).mean(axis=-1, keepdims=True) + 1e-6)
    return (rows * scale * weight.astype(jnp.float32)).astype(x.dtype), added


# Forward and backward: gradients are by kernels unless one asks for others.
AMDATTN = Computing(jnp.bfloat16, dot_product_attention, gemm_nt, rms_norm)
XLA = Computing(jnp.bfloat16, _attention_xla, _linear_xla, _add_and_norm_xla)
EXACT = XLA._replace(dtype=jnp.float32)
