"""A small BERT over bytes: every byte sees all, LayerNorm after each sum, masked bytes to guess."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from computing import Computing

MASKED, VOCABULARY = 256, 264  # the byte that hides others; bytes, it, and some that never occur
SHARE = 0.15  # of the bytes of a row that are hidden
Parameters = dict[str, Any]


class Sizes(NamedTuple):
    """Of the model, and of what it is trained on."""

    layers: int = 2
    channels: int = 64
    heads: int = 2
    inner: int = 128
    rows: int = 4  # of text in a batch
    length: int = 64  # of a row, in bytes

    @property
    def text(self) -> int:
        """Bytes of a row of a batch."""
        return self.length


@functools.partial(jax.jit, static_argnames="sizes")
def initial(sizes: Sizes, seed: int) -> Parameters:
    """Random float32 parameters."""
    c, inner = sizes.channels, sizes.inner
    shapes = {"qkv": (3 * c, c), "mixed": (c, c), "up": (inner, c), "down": (c, inner)}
    keys = iter(jax.random.split(jax.random.key(seed), 3 + sizes.layers * len(shapes)))

    def weight(shape: tuple[int, ...], scale: float) -> jax.Array:
        return scale * jax.random.normal(next(keys), shape)

    def norm() -> Parameters:
        return {"weight": jnp.ones(c), "bias": jnp.zeros(c)}

    def linear(shape: tuple[int, int]) -> Parameters:
        return {"weight": weight(shape, shape[1] ** -0.5), "bias": jnp.zeros(shape[0])}

    def layer() -> Parameters:
        return {
            **{name: linear(shape) for name, shape in shapes.items()},
            **{name: norm() for name in ("norm_mixed", "norm_inner")},
        }

    return {
        "bytes": weight((VOCABULARY, c), 0.1),
        "positions": weight((sizes.length, c), 0.1),
        "norm": norm(),
        "layers": [layer() for _ in range(sizes.layers)],
        "head": linear((c, c)),
        "norm_head": norm(),
        "bias": jnp.zeros(VOCABULARY),
    }


def layer_norm(x: jax.Array, w: Parameters) -> jax.Array:
    """By XLA, in float32: there is no kernel of it."""
    rows = x.astype(jnp.float32)
    rows = rows - rows.mean(axis=-1, keepdims=True)
    rows = rows * jax.lax.rsqrt(jnp.square(rows).mean(axis=-1, keepdims=True) + 1e-5)
    return (rows * w["weight"] + w["bias"]).astype(x.dtype)


def logits(p: Parameters, ids: jax.Array, sizes: Sizes, by: Computing) -> jax.Array:
    """Of each byte of `ids` (rows, length), of which some are hidden: in float32."""
    p = jax.tree.map(lambda x: x.astype(by.dtype), p)

    def linear(x: jax.Array, w: Parameters, **options: Any) -> jax.Array:
        return by.linear(x, w["weight"], w["bias"], **options)

    x = layer_norm(p["bytes"][ids] + p["positions"], p["norm"])
    for w in p["layers"]:
        qkv = linear(x, w["qkv"]).reshape(*ids.shape, 3, sizes.heads, -1)
        q, k, v = jnp.moveaxis(qkv, 2, 0)
        mixed = by.attention(q, k, v).reshape(x.shape)
        x = layer_norm(x + linear(mixed, w["mixed"]), w["norm_mixed"])
        x = layer_norm(
            x + linear(linear(x, w["up"], activation="gelu"), w["down"]), w["norm_inner"]
        )
    x = layer_norm(linear(x, p["head"], activation="gelu"), p["norm_head"])
    return by.linear(x, p["bytes"], p["bias"], out_dtype="float32")


def loss(p: Parameters, text: jax.Array, key: jax.Array, sizes: Sizes, by: Computing) -> jax.Array:
    """Mean cross-entropy in nats of the bytes of `text` (rows, length) that `key` hides."""
    hidden = jax.random.uniform(key, text.shape) < SHARE
    hidden = hidden.at[:, 0].set(True)  # one of each row at least
    log_p = jax.nn.log_softmax(logits(p, jnp.where(hidden, MASKED, text), sizes, by))
    of_each = jnp.take_along_axis(log_p, text[..., None], axis=-1)[..., 0]
    return -jnp.where(hidden, of_each, 0).sum() / hidden.sum()
