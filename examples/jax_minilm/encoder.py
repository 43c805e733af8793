"""MiniLM as one jitted JAX program: attention and linear layers are amdattn's kernels.

Activations and weights of both are bfloat16; what is added up and normalised is float32.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from amdattn.jax import flash_attn_varlen_func, gemm_nt

sys.path.append(str(Path(__file__).resolve().parents[1] / "minilm"))
from minilm import MiniLM  # its weights and its tokenizer

Weights = dict[str, Any]

_ATTENTION, _INNER = "attention.self", "intermediate.dense"
_MIXED, _OUT = "attention.output", "output"


class Batch(NamedTuple):
    """Sentences packed one after the other; what is left at the end is a sentence of its own.

    Shapes are rounded up, so that few programs serve all sentences.
    """

    ids: Any  # (tokens,) int32
    positions: Any  # (tokens,) int32, within the sentence
    owners: Any  # (tokens,) int32, which sentence
    sums: Any  # (sentences + 2,) int32, where each begins, and the end


def packed(model: MiniLM, sentences: Sequence[str]) -> tuple[Batch, int]:
    """The tokens of sentences, and a bound of their lengths: a power of two."""
    tokens = model.tokenize(sentences)
    lengths = np.diff(np.append(tokens.starts, len(tokens.ids)))
    longest = 1 << int(lengths.max() - 1).bit_length()
    rest = -len(tokens.ids) % longest
    lengths = np.append(lengths, rest)
    batch = Batch(
        ids=np.append(tokens.ids, np.zeros(rest)),
        positions=np.append(tokens.positions, np.arange(rest)),
        owners=np.repeat(np.arange(len(lengths)), lengths),
        sums=np.append(0, np.cumsum(lengths)),
    )
    return Batch(*(x.astype(np.int32) for x in batch)), longest


def weights_of(model: MiniLM) -> Weights:
    """The weights of a model for `embed`, those of all layers stacked for `jax.lax.scan`."""

    def stacked(name: str, dtype: Any) -> jax.Array:
        layers = (model.weights[f"encoder.layer.{i}.{name}"] for i in range(model.num_layers))
        return jnp.asarray(np.stack([*layers]), dtype)

    roles = [f"{_ATTENTION}.{role}" for role in ("query", "key", "value")]
    layers: Weights = {}
    for part in ("weight", "bias"):
        for name in (f"{_MIXED}.dense", _INNER, f"{_OUT}.dense"):
            layers[f"{name}.{part}"] = stacked(f"{name}.{part}", jnp.bfloat16)
        for name in (f"{_MIXED}.LayerNorm", f"{_OUT}.LayerNorm"):
            layers[f"{name}.{part}"] = stacked(f"{name}.{part}", jnp.float32)
        # q, k and v are one product.
        each = [stacked(f"{role}.{part}", jnp.bfloat16) for role in roles]
        layers[f"{_ATTENTION}.{part}"] = jnp.concatenate(each, axis=1)
    embeddings = {
        name: jnp.asarray(w) for name, w in model.weights.items() if name.startswith("embeddings.")
    }
    return {**embeddings, "layers": layers}


@functools.partial(jax.jit, static_argnames=("longest", "num_heads", "epsilon"))
def embed(
    weights: Weights, batch: Batch, *, longest: int, num_heads: int, epsilon: float
) -> jax.Array:
    """Embeddings of packed sentences, each of length 1: (sentences, channels) in float32."""

    def layer_norm(x: jax.Array, w: Weights, name: str) -> jax.Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + epsilon)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x: jax.Array, w: Weights, name: str, **options: Any) -> jax.Array:
        a = x.astype(jnp.bfloat16)
        return gemm_nt(a, w[f"{name}.weight"], w[f"{name}.bias"], **options)

    def layer(hidden: jax.Array, w: Weights) -> tuple[jax.Array, None]:
        qkv = linear(hidden, w, _ATTENTION).reshape(len(hidden), 3, num_heads, -1)
        q, k, v = (qkv[:, i] for i in range(3))
        mixed = flash_attn_varlen_func(q, k, v, batch.sums, batch.sums, longest, longest)
        mixed = mixed.reshape(hidden.shape)
        mixed = linear(mixed, w, f"{_MIXED}.dense", out_dtype="float32")
        hidden = layer_norm(hidden + mixed, w, f"{_MIXED}.LayerNorm")
        inner = linear(hidden, w, _INNER, activation="gelu")
        inner = linear(inner, w, f"{_OUT}.dense", out_dtype="float32")
        return layer_norm(hidden + inner, w, f"{_OUT}.LayerNorm"), None

    word, position, token_type = (
        weights[f"embeddings.{kind}_embeddings.weight"]
        for kind in ("word", "position", "token_type")
    )
    hidden = word[batch.ids] + position[batch.positions] + token_type[0]
    hidden = layer_norm(hidden, weights, "embeddings.LayerNorm")
    hidden, _ = jax.lax.scan(layer, hidden, weights["layers"])
    # The rest at the end is no sentence: its sum is dropped.
    pooled = jax.ops.segment_sum(hidden, batch.owners, num_segments=len(batch.sums) - 2)
    return pooled / jnp.linalg.norm(pooled, axis=-1, keepdims=True)


class JaxMiniLM:
    """A model of examples/minilm, computed by `embed`."""

    def __init__(self, model: MiniLM) -> None:
        self.weights = weights_of(model)
        self._model = model

    def embed(self, sentences: Sequence[str]) -> jax.Array:
        """Embeddings of sentences, each of length 1: (sentences, channels) in float32."""
        batch, longest = packed(self._model, sentences)
        return embed(
            self.weights,
            batch,
            longest=longest,
            num_heads=self._model.num_heads,
            epsilon=self._model.epsilon,
        )
