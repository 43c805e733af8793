"""The same models in NumPy and float64: products as a checkpoint stores them, no cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .checkpoint import Checkpoint
from .config import Config
from .weights import EMBEDDING, HEAD, NORM

Array = NDArray[np.float64]


def exactly(x: Array) -> Array:
    """What is kept of an intermediate result: all."""
    return x


class Reference:
    """Logits of a checkpoint's model, of all positions of a sequence at once.

    `keep` is done to everything that the device has in memory between kernels, and `quantise` to
    both operands of a layer's products: a rounding there shows how large an error it explains.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: Config,
        keep: Callable[[Array], Array] = exactly,
        quantise: Callable[[Array], Array] = exactly,
    ) -> None:
        self.config, self._keep, self._quantise = config, keep, quantise
        self._tensors = {name: checkpoint.tensor(name) for name in checkpoint.places}

    def logits(self, ids: Sequence[int]) -> Array:
        """(len(ids), vocabulary): of the token behind each."""
        h = self._tensor(EMBEDDING)[list(ids)]
        cos, sin = (x[:, None] for x in self.config.rope.tables(len(ids)))
        for i, window in enumerate(self.config.windows):
            prefix = f"model.layers.{i}."
            normed = self._normed(h, prefix + "input_layernorm")
            h = self._keep(h + self._attention(normed, prefix + "self_attn.", window, cos, sin))
            normed = self._normed(h, prefix + "post_attention_layernorm")
            gate, up = (self._linear(normed, f"{prefix}mlp.{x}_proj") for x in ("gate", "up"))
            inner = self._keep(gate / (1 + np.exp(-gate)) * up)
            h = self._keep(h + self._linear(inner, prefix + "mlp.down_proj"))
        head = EMBEDDING if self.config.is_tied else HEAD
        found: Array = self._normed(h, NORM.removesuffix(".weight")) @ self._tensor(head).T
        return found

    def _attention(
        self, x: Array, prefix: str, window: int | None, cos: Array, sin: Array
    ) -> Array:
        c, rows = self.config, len(x)
        q, k, v = (
            self._keep(self._linear(x, f"{prefix}{name}_proj")).reshape(rows, -1, c.head_dim)
            for name in "qkv"
        )
        if c.qk_norm:
            q, k = self._normed(q, prefix + "q_norm"), self._normed(k, prefix + "k_norm")
        q, k = (self._keep(_turned(x, cos, sin)) for x in (q, k))
        k, v = (np.repeat(x, c.heads // c.heads_kv, axis=1) for x in (k, v))
        behind = np.arange(rows)[:, None] - np.arange(rows)
        seen = (behind >= 0) & (behind < (window or rows))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(c.head_dim)
        scores = np.where(seen, scores, -np.inf)
        shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
        shares /= shares.sum(axis=-1, keepdims=True)
        out = np.einsum("hqk,khd->qhd", shares, v).reshape(rows, -1)
        return self._linear(self._keep(out), prefix + "o_proj")

    def _linear(self, x: Array, name: str) -> Array:
        out: Array = self._quantise(x) @ self._quantise(self._tensor(name + ".weight")).T
        return out + self._tensor(name + ".bias") if name + ".bias" in self._tensors else out

    def _normed(self, x: Array, name: str) -> Array:
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + self.config.epsilon)
        return self._keep(x / scale * self._tensor(name + ".weight"))

    def _tensor(self, name: str) -> Array:
        return self._tensors[name].astype(np.float64)


def _turned(x: Array, cos: Array, sin: Array) -> Array:
    """By the angles of each row's position; a channel's pair is half a head away."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
