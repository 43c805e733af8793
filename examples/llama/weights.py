"""Weights: the tensors that a model must have, and their copies on the device, packed."""

from __future__ import annotations

import math
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
_PRODUCT = "_proj.weight"
# Products of a layer, and the norm of what goes into each.
NORMED = {"qkv": "attention_norm", "gate_up": "mlp_norm"}
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
class Product:
    """Weights of a product, (columns of the result, of the input), on the device."""

    weight: amdattn.DeviceArray
    bias: amdattn.DeviceArray | None
    scale: amdattn.DeviceArray | None  # of weights in 8 bits, (rows, 1)


@dataclass(frozen=True)
class Layer:
    """Of a layer, on the device. Weights of norms that are in a product's are ones here."""

    attention_norm: amdattn.DeviceArray
    qkv: Product
    o: Product
    mlp_norm: amdattn.DeviceArray
    gate_up: Product
    down: Product
    q_norm: amdattn.DeviceArray | None
    k_norm: amdattn.DeviceArray | None


@dataclass(frozen=True)
class Weights:
    """Of a model, all of one type: bfloat16, or float16 where the checkpoint's embedding is.

    With `eight_bits`, a type, products of layers are of it and have a scale for each row. With
    `folded` the weights of norms are factors of those of the products behind them.
    """

    dtype: Any
    eight_bits: Any
    embedding: amdattn.DeviceArray  # the head itself where both are tied
    layers: tuple[Layer, ...]
    norm: amdattn.DeviceArray
    head: amdattn.DeviceArray
    folded: bool


def folded(view: NDArray[Any], norm: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Weights of a product times those of the norm before it, rounded once."""
    found: NDArray[Any] = (view.astype(np.float32) * norm.astype(np.float32)).astype(dtype)
    return found


def load(
    checkpoint: Checkpoint,
    config: Config,
    console: Console | None = None,
    in_8_bits: bool = False,
    folds: bool = False,
) -> Weights:
    """Copy each tensor once from its mapped file to its place on the device.

    With `in_8_bits` products of layers are quantised there, one after the other. With `folds`
    weights of norms are multiplied into those of q, k and v, and of gate and up, on the host.
    """
    check(checkpoint, config)
    given = checkpoint.tensor(EMBEDDING).dtype
    dtype = np.dtype(np.float16 if given == np.float16 else ml_dtypes.bfloat16)
    nbytes = {name: math.prod(x) * dtype.itemsize for name, x in shapes(config).items()}
    total = sum(nbytes.values())
    kept = sum(x // 2 if in_8_bits and _PRODUCT in name else x for name, x in nbytes.items())
    require(kept, "the model's weights")
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=console is None) as progress:
        task = progress.add_task("weights", total=total)

        def packed(*names: str, norm: str = "") -> amdattn.DeviceArray:
            views = [checkpoint.tensor(name) for name in names]
            factors = checkpoint.tensor(norm) if norm else None
            rows = sum(len(view) for view in views)
            array = amdattn.empty((rows, *views[0].shape[1:]), dtype)
            first = 0
            for view in views:
                # Of the model's own type nothing is made on the host: the mapped file is copied.
                own = view.astype(dtype, copy=False)
                if factors is not None:
                    own = folded(view, factors, dtype)
                upload(array[first : first + len(view)], own)
                first += len(view)
                progress.advance(task, view.size * dtype.itemsize)
            return array

        def layer(i: int) -> Layer:
            of_layer = parts(config)

            def array(name: str) -> amdattn.DeviceArray | None:
                if name not in of_layer:
                    return None
                if unit is not None and name in NORMED.values():
                    return unit
                (norm,) = of_layer[NORMED[name]] if folds and name in NORMED else ("",)
                names = (f"model.layers.{i}.{name}" for name in of_layer[name])
                return packed(*names, norm=norm and f"model.layers.{i}.{norm}")

            def one(name: str) -> amdattn.DeviceArray:
                found = array(name)
                assert found is not None
                return found

            def product(name: str) -> Product:
                weight, scale = one(name), None
                if in_8_bits:
                    weight, scale = amdattn.quantize_fp8(weight)
                return Product(weight, array(f"{name}_bias"), scale)

            return Layer(
                attention_norm=one("attention_norm"),
                qkv=product("qkv"),
                o=product("o"),
                mlp_norm=one("mlp_norm"),
                gate_up=product("gate_up"),
                down=product("down"),
                q_norm=array("q_norm"),
                k_norm=array("k_norm"),
            )

        unit = None
        if folds:
            unit = amdattn.empty((config.hidden,), dtype)
            upload(unit, np.ones(config.hidden, dtype))
        embedding = packed(EMBEDDING)
        head = embedding if config.is_tied else packed(HEAD)
        layers = tuple(layer(i) for i in range(config.layers))
        norm = packed(NORM)
    amdattn.synchronize()
    eight_bits = layers[0].qkv.weight.dtype if in_8_bits else None
    return Weights(dtype, eight_bits, embedding, layers, norm, head, folds)
