"""A small causal transformer over bytes, in bfloat16, its forward pass by amdattn or by XLA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from amdattn.jax import flash_attn_func, gemm_nt, rms_norm

VOCABULARY = 256
Parameters = dict[str, Any]


class Sizes(NamedTuple):
    """Of the model, and of what it is trained on."""

    layers: int = 2
    channels: int = 128
    heads: int = 2
    inner: int = 512
    rows: int = 4  # of text in a batch
    length: int = 64  # of a row, in bytes


class Kernels(NamedTuple):
    """What computes the forward pass."""

    attention: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # (B, T, N, H), causal
    linear: Callable[..., jax.Array]  # (x, weight, activation=, out_dtype=): x @ weight^T
    norm: Callable[[jax.Array, jax.Array], jax.Array]  # (x, weight)


# Gradients are XLA's, in float32: of products and norms there are no backward kernels yet.
AMDATTN = Kernels(
    attention=functools.partial(flash_attn_func, causal=True, implementation_backward="xla"),
    linear=functools.partial(gemm_nt, implementation_backward="xla"),
    norm=functools.partial(rms_norm, implementation_backward="xla"),
)


def _linear_xla(
    x: jax.Array, weight: jax.Array, activation: str | None = None, out_dtype: Any = None
) -> jax.Array:
    out = jnp.einsum("...k,nk->...n", x, weight, preferred_element_type=jnp.float32)
    if activation == "gelu":
        out = jax.nn.gelu(out, approximate=False)
    return out.astype(out_dtype or x.dtype)


def _norm_xla(x: jax.Array, weight: jax.Array) -> jax.Array:
    rows = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.square(rows).mean(axis=-1, keepdims=True) + 1e-6)
    return (rows * scale * weight.astype(jnp.float32)).astype(x.dtype)


XLA = Kernels(
    attention=functools.partial(jax.nn.dot_product_attention, is_causal=True, implementation="xla"),
    linear=_linear_xla,
    norm=_norm_xla,
)


@functools.partial(jax.jit, static_argnames="sizes")
def initial(sizes: Sizes, seed: int) -> Parameters:
    """Random float32 parameters."""
    c, inner = sizes.channels, sizes.inner
    shapes = {"qkv": (3 * c, c), "mixed": (c, c), "up": (inner, c), "down": (c, inner)}
    keys = iter(jax.random.split(jax.random.key(seed), 2 + sizes.layers * len(shapes)))

    def weight(shape: tuple[int, ...]) -> jax.Array:
        return 0.02 * jax.random.normal(next(keys), shape)

    def layer() -> Parameters:
        return {
            **{name: weight(shape) for name, shape in shapes.items()},
            **{name: jnp.ones(c) for name in ("norm_mixed", "norm_inner")},
        }

    return {
        "bytes": weight((VOCABULARY, c)),
        "positions": weight((sizes.length, c)),
        "layers": [layer() for _ in range(sizes.layers)],
        "norm": jnp.ones(c),
    }


def logits(p: Parameters, ids: jax.Array, sizes: Sizes, kernels: Kernels) -> jax.Array:
    """Of the next byte after each of `ids` (rows, length): (rows, length, 256) in float32."""
    p = jax.tree.map(lambda x: x.astype(jnp.bfloat16), p)
    x = p["bytes"][ids] + p["positions"]
    for w in p["layers"]:
        qkv = kernels.linear(kernels.norm(x, w["norm_mixed"]), w["qkv"])
        q, k, v = jnp.moveaxis(qkv.reshape(*ids.shape, 3, sizes.heads, -1), 2, 0)
        mixed = kernels.attention(q, k, v).reshape(x.shape)
        x = x + kernels.linear(mixed, w["mixed"])
        inner = kernels.linear(kernels.norm(x, w["norm_inner"]), w["up"], activation="gelu")
        x = x + kernels.linear(inner, w["down"])
    return kernels.linear(kernels.norm(x, p["norm"]), p["bytes"], out_dtype="float32")


def loss(p: Parameters, text: jax.Array, sizes: Sizes, kernels: Kernels) -> jax.Array:
    """Mean cross-entropy in nats a byte of the last `length` bytes of `text` (rows, length + 1)."""
    log_p = jax.nn.log_softmax(logits(p, text[:, :-1], sizes, kernels))
    return -jnp.take_along_axis(log_p, text[:, 1:, None], axis=-1).mean()
