"""Weights: the tensors that a model must have, and their copies on the device, packed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

import amdattn

from .checkpoint import Checkpoint
from .config import Config
from .device import require, upload
from .errors import ModelError

EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
# Of old files: what angles are made of, which config.json says, too.
_UNUSED = ".rotary_emb.inv_freq"
Names = tuple[str, ...]


def parts(config: Config) -> dict[str, Names]:
    """Arrays of a layer by their names in `Layer`, and the tensors whose rows each is made of."""
    found: dict[str, Names] = {
        "attention_norm": ("input_layernorm.weight",),
        "qkv": tuple(f"self_attn.{x}_proj.weight" for x in "qkv"),
        "o": ("self_attn.o_proj.weight",),
        "mlp_norm": ("post_attention_layernorm.weight",),
        "gate_up": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        "down": ("mlp.down_proj.weight",),
    }
    with_bias = {"qkv": config.qkv_bias, "o": config.o_bias}
    with_bias |= dict.fromkeys(("gate_up", "down"), config.mlp_bias)
    for name, has_one in with_bias.items():
        if has_one:
            found[f"{name}_bias"] = tuple(x.replace("weight", "bias") for x in found[name])
    if config.qk_norm:
        found |= {f"{x}_norm": (f"self_attn.{x}_norm.weight",) for x in "qk"}
    return found


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Every tensor that a checkpoint of the model must have."""
    c, q, kv = config, config.heads * config.head_dim, config.heads_kv * config.head_dim
    of_products = {
        "q_proj": (q, c.hidden),
        "k_proj": (kv, c.hidden),
        "v_proj": (kv, c.hidden),
        "o_proj": (c.hidden, q),
        "gate_proj": (c.inner, c.hidden),
        "up_proj": (c.inner, c.hidden),
        "down_proj": (c.hidden, c.inner),
    }

    def shape(name: str) -> tuple[int, ...]:
        module, kind = name.split(".")[-2:]
        if module in of_products:
            return of_products[module] if kind == "weight" else of_products[module][:1]
        return (c.head_dim if module in ("q_norm", "k_norm") else c.hidden,)

    found: dict[str, tuple[int, ...]] = {EMBEDDING: (c.vocabulary, c.hidden), NORM: (c.hidden,)}
    if not c.is_tied:
        found[HEAD] = (c.vocabulary, c.hidden)
    for i in range(c.layers):
        for names in parts(config).values():
            found |= {f"model.layers.{i}.{name}": shape(name) for name in names}
    return found


def check(checkpoint: Checkpoint, config: Config) -> None:
    """Hold a checkpoint to its config.json.

    Raises
    ------
    ModelError
        A tensor is missing, unknown or of another shape; the text names it.
    """
    wanted, given = shapes(config), checkpoint.places
    for name, shape in wanted.items():
        if name not in given:
            raise ModelError(f"tensor {name} is missing: {config.family} of config.json needs it")
        if given[name].shape != shape:
            raise ModelError(
                f"tensor {name} has shape {given[name].shape}; by config.json it is {shape}"
            )
    for name in given:
        # A head beside an embedding that makes logits is a copy of it.
        if name not in wanted and not name.endswith(_UNUSED) and name != HEAD:
            raise ModelError(f"tensor {name} is unknown: {config.family} has no place for it")


@dataclass(frozen=True)
class Layer:
    """Arrays on the device; of products as (columns of the result, of the input)."""

    attention_norm: amdattn.DeviceArray
    qkv: amdattn.DeviceArray
    o: amdattn.DeviceArray
    mlp_norm: amdattn.DeviceArray
    gate_up: amdattn.DeviceArray
    down: amdattn.DeviceArray
    q_norm: amdattn.DeviceArray | None = None
    k_norm: amdattn.DeviceArray | None = None
    qkv_bias: amdattn.DeviceArray | None = None
    o_bias: amdattn.DeviceArray | None = None
    gate_up_bias: amdattn.DeviceArray | None = None
    down_bias: amdattn.DeviceArray | None = None


@dataclass(frozen=True)
class Weights:
    """Of a model, all of one type: bfloat16, or float16 where the checkpoint's embedding is."""

    dtype: Any
    host_embedding: NDArray[Any]  # mapped, as the checkpoint has it
    layers: tuple[Layer, ...]
    norm: amdattn.DeviceArray
    head: amdattn.DeviceArray
    nbytes: int  # on the device


def load(checkpoint: Checkpoint, config: Config, console: Console | None = None) -> Weights:
    """Copy each tensor once from its mapped file to its place on the device."""
    check(checkpoint, config)
    embedding = checkpoint.tensor(EMBEDDING)
    dtype = np.dtype(np.float16 if embedding.dtype == np.float16 else ml_dtypes.bfloat16)
    total = sum(int(np.prod(shape)) for name, shape in shapes(config).items() if name != EMBEDDING)
    total = (total + config.is_tied * embedding.size) * dtype.itemsize
    require(total, "the model's weights")
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=console is None) as progress:
        task = progress.add_task("weights", total=total)

        def packed(names: Names) -> amdattn.DeviceArray:
            views = [checkpoint.tensor(name) for name in names]
            rows = sum(len(view) for view in views)
            array = amdattn.empty((rows, *views[0].shape[1:]), dtype)
            first = 0
            for view in views:
                # Of the model's own type nothing is made on the host: the mapped file is copied.
                upload(array[first : first + len(view)], view.astype(dtype, copy=False))
                first += len(view)
                progress.advance(task, view.size * dtype.itemsize)
            return array

        def layers() -> Iterator[Layer]:
            for i in range(config.layers):
                of_layer = parts(config).items()
                yield Layer(
                    **{
                        array: packed(tuple(f"model.layers.{i}.{name}" for name in names))
                        for array, names in of_layer
                    }
                )

        head = packed((EMBEDDING if config.is_tied else HEAD,))
        return Weights(dtype, embedding, tuple(layers()), packed((NORM,)), head, total)
