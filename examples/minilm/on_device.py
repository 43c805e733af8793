"""The whole model as kernels: NumPy computes nothing between tokens and embeddings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np
from minilm import Array, MiniLM, Tokens

import amdattn

_BF16 = ml_dtypes.bfloat16
_ROLES = ("query", "key", "value")


class OnDevice:
    """A model's weights on the device, in bfloat16, and its forward pass there.

    Tokens of all sentences follow each other; attention tells sentences apart by where they begin.

    Attributes
    ----------
    launches : int
        Calls of operations so far, each one kernel but for attention of parts.
    """

    def __init__(self, model: MiniLM) -> None:
        self._model, self.launches = model, 0
        self._arrays: dict[str, amdattn.DeviceArray] = {}
        given = model.weights
        word, position, token_type = (
            given[f"embeddings.{kind}_embeddings.weight"]
            for kind in ("word", "position", "token_type")
        )
        self._put("word", word)
        # Every token is of type 0.
        self._put("position", position + token_type[0])
        for layer in range(model.num_layers):
            attention = f"encoder.layer.{layer}.attention.self"
            for part in ("weight", "bias"):
                three = [given[f"{attention}.{role}.{part}"] for role in _ROLES]
                self._put(f"{attention}.{part}", np.concatenate(three))
        for name, array in given.items():
            if (name.startswith("encoder.") and ".self." not in name) or "LayerNorm" in name:
                self._put(name, array)
        hidden = word.shape[1]
        # The root of a mean square is that of the sum, over the root of how many there are.
        self._put("unit", np.full(hidden, 1 / math.sqrt(hidden)))

    def embed(self, sentences: Sequence[str]) -> Array:
        """Embeddings of sentences, each of length 1, (len(sentences), 384), float32."""
        tokens = self._model.tokenize(sentences)
        hidden = self._embedded(tokens)
        begins = np.append(tokens.starts, len(tokens.ids)).astype(np.int32)
        longest = int(np.diff(begins).max())
        begin = amdattn.asarray(begins)
        for layer in range(self._model.num_layers):
            name = f"encoder.layer.{layer}"
            mixed = self._attention(f"{name}.attention.self", hidden, begin, longest)
            mixed = self._linear(f"{name}.attention.output.dense", mixed)
            hidden = self._norm(f"{name}.attention.output.LayerNorm", mixed, hidden)
            inner = self._linear(f"{name}.intermediate.dense", hidden, "gelu")
            inner = self._linear(f"{name}.output.dense", inner)
            hidden = self._norm(f"{name}.output.LayerNorm", inner, hidden)
        # Sums of the tokens of each sentence are a product by ones and zeros.
        mine = np.zeros((len(sentences), len(tokens.ids)), _BF16)
        mine[np.repeat(np.arange(len(sentences)), np.diff(begins)), np.arange(len(tokens.ids))] = 1
        sums = amdattn.gemm(amdattn.asarray(mine), hidden, layout="nn")
        unit = amdattn.rms_norm(sums, self._arrays["unit"], eps=0.0)
        self.launches += 2
        found: Array = unit.numpy().astype(np.float32)
        return found

    def _put(self, name: str, array: Array) -> None:
        self._arrays[name] = amdattn.asarray(array.astype(_BF16))

    def _embedded(self, tokens: Tokens) -> amdattn.DeviceArray:
        word, position = (
            amdattn.embedding(self._arrays[name], amdattn.asarray(ids.astype(np.int32)))
            for name, ids in (("word", tokens.ids), ("position", tokens.positions))
        )
        self.launches += 2
        return self._norm("embeddings.LayerNorm", word, position)

    def _norm(
        self, name: str, x: amdattn.DeviceArray, residual: amdattn.DeviceArray
    ) -> amdattn.DeviceArray:
        weight, bias = (self._arrays[f"{name}.{part}"] for part in ("weight", "bias"))
        self.launches += 1
        out, _ = amdattn.layer_norm(x, weight, bias, residual, self._model.epsilon)
        return out

    def _linear(
        self, name: str, x: amdattn.DeviceArray, activation: str | None = None
    ) -> amdattn.DeviceArray:
        weight, bias = (self._arrays[f"{name}.{part}"] for part in ("weight", "bias"))
        self.launches += 1
        return amdattn.gemm_nt(x, weight, bias=bias, activation=activation)

    def _attention(
        self, name: str, hidden: amdattn.DeviceArray, begin: amdattn.DeviceArray, longest: int
    ) -> amdattn.DeviceArray:
        heads = self._model.num_heads
        qkv = self._linear(name, hidden)
        rows, columns = qkv.shape
        three = qkv.reshape((rows, 3, heads, columns // heads // 3))
        q, k, v = (three[:, i] for i in range(3))
        self.launches += 1
        out = amdattn.flash_attn_varlen_func(q, k, v, begin, begin, longest, longest)
        return out.reshape((rows, columns // 3))
