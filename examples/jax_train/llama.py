"""A small Llama over bytes: grouped queries, rotary positions, RMSNorm, SwiGLU."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from computing import Computing

VOCABULARY = 256
Parameters = dict[str, Any]


class Sizes(NamedTuple):
    """Of the model, and of what it is trained on."""

    layers: int = 2
    channels: int = 64
    heads: int = 4
    kv_heads: int = 2
    inner: int = 128
    rows: int = 4  # of text in a batch
    length: int = 64  # of a row, in bytes

    @property
    def text(self) -> int:
        """Bytes of a row of a batch: each byte, and the one after it."""
        return self.length + 1


@functools.partial(jax.jit, static_argnames="sizes")
def initial(sizes: Sizes, seed: int) -> Parameters:
    """Random float32 parameters."""
    c, dim = sizes.channels, sizes.channels // sizes.heads
    shapes = {
        "qkv": ((sizes.heads + 2 * sizes.kv_heads) * dim, c),
        "mixed": (c, c),
        "up": (2 * sizes.inner, c),
        "down": (c, sizes.inner),
    }
    keys = iter(jax.random.split(jax.random.key(seed), 1 + sizes.layers * len(shapes)))

    def weight(shape: tuple[int, ...], scale: float) -> jax.Array:
        return scale * jax.random.normal(next(keys), shape)

    def layer() -> Parameters:
        return {
            **{name: weight(shape, shape[1] ** -0.5) for name, shape in shapes.items()},
            **{name: jnp.ones(c) for name in ("norm_mixed", "norm_inner")},
        }

    return {
        "bytes": weight((VOCABULARY, c), 0.1),
        "layers": [layer() for _ in range(sizes.layers)],
        "norm": jnp.ones(c),
    }


def rotated(x: jax.Array) -> jax.Array:
    """Rotary positions of (rows, length, heads, dim): pairs of a half's columns, in float32."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = (f(angles)[None, :, None] for f in (jnp.cos, jnp.sin))
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(x.dtype)


def logits(p: Parameters, ids: jax.Array, sizes: Sizes, by: Computing) -> jax.Array:
    """Of the next byte after each of `ids` (rows, length): (rows, length, 256) in float32."""
    p = jax.tree.map(lambda x: x.astype(by.dtype), p)
    heads, kv_heads = sizes.heads, sizes.kv_heads
    x = p["bytes"][ids]
    added = jnp.zeros_like(x)
    for w in p["layers"]:
        h, x = by.add_and_norm(added, w["norm_mixed"], x)
        qkv = by.linear(h, w["qkv"]).reshape(*ids.shape, heads + 2 * kv_heads, -1)
        q, k, v = jnp.split(qkv, (heads, heads + kv_heads), axis=2)
        mixed = by.attention(rotated(q), rotated(k), v, is_causal=True)
        h, x = by.add_and_norm(by.linear(mixed.reshape(x.shape), w["mixed"]), w["norm_inner"], x)
        added = by.linear(by.linear(h, w["up"], activation="silu_and_mul"), w["down"])
    h, _ = by.add_and_norm(added, p["norm"], x)
    return by.linear(h, p["bytes"], out_dtype="float32")


def loss(p: Parameters, text: jax.Array, key: jax.Array, sizes: Sizes, by: Computing) -> jax.Array:
    """Mean cross-entropy in nats a byte of the last `length` bytes of `text`."""
    log_p = jax.nn.log_softmax(logits(p, text[:, :-1], sizes, by))
    return -jnp.take_along_axis(log_p, text[:, 1:, None], axis=-1).mean()
