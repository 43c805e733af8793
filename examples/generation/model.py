"""A decoder with random weights: what it is, and what it computes in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

BF16 = ml_dtypes.bfloat16
Array = NDArray[np.float64]
EPSILON = 1e-5
THETA = 10000.0  # of rotary angles


@dataclass(frozen=True)
class Sizes:
    """Of a decoder in the manner of Llama: rotary positions, grouped heads, a gated MLP."""

    vocabulary: int = 256
    layers: int = 2
    hidden: int = 256
    heads: int = 4
    heads_kv: int = 2
    head_dim: int = 64
    inner: int = 512

    @property
    def columns(self) -> tuple[int, int]:
        """Of q, and of k or v, in the product that makes all three."""
        return self.heads * self.head_dim, self.heads_kv * self.head_dim


@dataclass(frozen=True)
class Layer:
    """Weights of a layer in bfloat16; of products as (columns of the result, of the input)."""

    attention_norm: NDArray[np.generic]
    qkv: NDArray[np.generic]
    o: NDArray[np.generic]
    mlp_norm: NDArray[np.generic]
    gate_up: NDArray[np.generic]
    down: NDArray[np.generic]


@dataclass(frozen=True)
class Weights:
    """Of a model: rows of tokens, layers, and what makes logits of the last one's rows."""

    embedding: NDArray[np.generic]
    layers: tuple[Layer, ...]
    norm: NDArray[np.generic]
    head: NDArray[np.generic]


def random_weights(sizes: Sizes, seed: int = 0) -> Weights:
    """Such that sums of products stay about as large as what goes in."""
    rng = np.random.default_rng(seed)

    def product(n: int, k: int) -> NDArray[np.generic]:
        return (rng.standard_normal((n, k)) / np.sqrt(k)).astype(BF16)

    def norm() -> NDArray[np.generic]:
        return rng.uniform(0.5, 1.5, sizes.hidden).astype(BF16)

    of_q, of_kv = sizes.columns
    layers = tuple(
        Layer(
            attention_norm=norm(),
            qkv=product(of_q + 2 * of_kv, sizes.hidden),
            o=product(sizes.hidden, of_q),
            mlp_norm=norm(),
            gate_up=product(2 * sizes.inner, sizes.hidden),
            down=product(sizes.hidden, sizes.inner),
        )
        for _ in range(sizes.layers)
    )
    embedding = rng.standard_normal((sizes.vocabulary, sizes.hidden)).astype(BF16)
    return Weights(embedding, layers, norm(), product(sizes.vocabulary, sizes.hidden))


def angles(sizes: Sizes, positions: int) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Cosines and sines of every position, (positions, head_dim / 2)."""
    frequencies = THETA ** -(np.arange(0, sizes.head_dim, 2) / sizes.head_dim)
    turns = np.arange(positions)[:, None] * frequencies
    return np.cos(turns).astype(BF16), np.sin(turns).astype(BF16)


def float64(weights: Weights) -> Weights:
    """The same numbers in float64."""

    def wide(of: Layer) -> Layer:
        return Layer(*(getattr(of, field.name).astype(np.float64) for field in fields(of)))

    ends = (x.astype(np.float64) for x in (weights.embedding, weights.norm, weights.head))
    embedding, *last = ends
    return Weights(embedding, tuple(map(wide, weights.layers)), *last)


def exactly(x: Array) -> Array:
    """What is kept of an intermediate result: all."""
    return x


def as_bfloat16(x: Array) -> Array:
    """What is kept of one in memory of bfloat16."""
    return x.astype(BF16).astype(np.float64)


def logits(
    weights: Weights, sizes: Sizes, ids: list[int], keep: Callable[[Array], Array] = exactly
) -> Array:
    """In float64, of all positions at once, without a cache: (len(ids), vocabulary).

    `keep` is done to everything that the device has in memory between kernels.
    """
    cos, sin = (x.astype(np.float64)[:, None] for x in angles(sizes, len(ids)))
    seen = np.tril(np.ones((len(ids), len(ids)), bool))
    h = weights.embedding[ids]
    for layer in weights.layers:
        qkv = keep(keep(_normed(h, layer.attention_norm)) @ layer.qkv.T)
        of_q, of_kv = sizes.columns
        q, k, v = np.split(qkv, (of_q, of_q + of_kv), axis=1)
        q, k, v = (x.reshape(len(ids), -1, sizes.head_dim) for x in (q, k, v))
        q, k = (keep(_turned(x, cos, sin)) for x in (q, k))
        k, v = (np.repeat(x, sizes.heads // sizes.heads_kv, axis=1) for x in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(sizes.head_dim)
        scores = np.where(seen, scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        attended = keep(np.einsum("hqk,khd->qhd", shares, v).reshape(len(ids), -1))
        h = keep(h + keep(attended @ layer.o.T))
        gate, up = np.split(keep(_normed(h, layer.mlp_norm)) @ layer.gate_up.T, 2, axis=1)
        h = keep(h + keep(keep(gate / (1 + np.exp(-gate)) * up) @ layer.down.T))
    return keep(_normed(h, weights.norm)) @ weights.head.T


def _normed(x: Array, weight: Array) -> Array:
    return x * weight / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)


def _turned(x: Array, cos: Array, sin: Array) -> Array:
    """By the angles of each row's position, halves being pairs."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)
