"""Calls of the backward, on numbers of the forward's adversary or of one's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

import amdattn
from amdattn.ops.attention_backward.reference import Inputs, Options, of_forward
from tests.support.adversary.plain import Array
from tests.support.adversary.sweep import made
from tests.support.backward.bar import Truth, ratios

ELEMENTS: dict[str, Any] = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
RESULTS = ("dq", "dk", "dv", "dsinks")
_OPTIONS = tuple(field.name for field in dataclasses.fields(Options))


@dataclasses.dataclass(frozen=True)
class Call:
    """A call on (batch, seqlen, heads, columns)."""

    inputs: Inputs
    options: Options
    dtype: str
    more: dict[str, Any] = dataclasses.field(default_factory=dict)

    def run(self) -> dict[str, Array]:
        """Results by name."""
        given = self.inputs
        arrays = (given.dout, given.q, given.k, given.v, given.o, given.lse)
        options: dict[str, Any] = {**dataclasses.asdict(self.options), **self.more}
        found = amdattn.flash_attn_backward(*arrays, sinks=given.sinks, dlse=given.dlse, **options)
        return dict(zip(RESULTS, found, strict=False))

    def ratios(self) -> dict[str, float]:
        """Errors beside the bar."""
        return ratios(self.run(), Truth.of(self.inputs, self.options, self.dtype))

    def check(self) -> None:
        """They are within it."""
        wrong = {kind: ratio for kind, ratio in self.ratios().items() if not ratio <= 1}
        assert not wrong, f"{self}: {wrong}"

    def __str__(self) -> str:
        q, k, v = self.inputs.q, self.inputs.k, self.inputs.v
        return f"{self.dtype} q {q.shape} k {k.shape} v {v.shape} {self.options} {self.more}"


def normal(
    rows: int,
    keys: int,
    heads: tuple[int, int] = (1, 1),
    dims: tuple[int, int] = (64, 64),
    *,
    batch: int = 1,
    dtype: str = "bfloat16",
    seed: int = 0,
    sinks: bool = False,
    dlse: bool = False,
    more: dict[str, Any] | None = None,
    **options: Any,
) -> Call:
    """Of normally distributed numbers."""
    rng = np.random.default_rng(seed)
    shapes = (
        *((batch, rows, heads[0], dims[1]), (batch, rows, heads[0], dims[0])),
        *((batch, keys, heads[1], dims[0]), (batch, keys, heads[1], dims[1])),
    )
    arrays = (rng.standard_normal(s, np.float32).astype(ELEMENTS[dtype]) for s in shapes)
    asked = Options(**options)
    of_sinks = rng.standard_normal(heads[0], np.float32) if sinks else None
    of_lse = rng.standard_normal((batch, heads[0], rows), np.float32) if dlse else None
    dout, q, k, v = arrays
    return Call(of_forward(dout, q, k, v, asked, of_sinks, dlse=of_lse), asked, dtype, more or {})


# -- the forward's classes, with gradients of several kinds ----------------------------------------


def _normal(rng: np.random.Generator, shape: tuple[int, ...], v: Array) -> Array:
    return rng.standard_normal(shape)


def _any_size(rng: np.random.Generator, shape: tuple[int, ...], v: Array) -> Array:
    """2^-60 to 2^60, by row."""
    return rng.standard_normal(shape) * 2.0 ** rng.uniform(-60, 60, (*shape[:-1], 1))


def _cancelling(rng: np.random.Generator, shape: tuple[int, ...], v: Array) -> Array:
    """Nearly the same product with every V: dP is near delta."""
    return np.ones(shape) + 2.0**-6 * rng.standard_normal(shape)


def _sparse(rng: np.random.Generator, shape: tuple[int, ...], v: Array) -> Array:
    """A few rows."""
    return rng.standard_normal(shape) * (rng.random((*shape[:2], 1, 1)) < 0.1)


def _small(rng: np.random.Generator, shape: tuple[int, ...], v: Array) -> Array:
    return rng.uniform(-0.1, 0.1, shape)


GRADIENTS = {
    "normal": _normal,
    "any size": _any_size,
    "cancelling": _cancelling,
    "sparse": _sparse,
    "small": _small,
}


def adversary(name: str, number: int, seed: int = 0, gradient: str = "", forward: str = "") -> Call:
    """A launch of a class of the forward's, with one of GRADIENTS; always the same one.

    forward : a kernel, of which it is the same on every architecture that has it.
    """
    launch = made(name, number, seed, kernel=forward)
    rng = np.random.default_rng([seed, number, 7])
    kind = gradient or list(GRADIENTS)[number % len(GRADIENTS)]
    _, (q, k, v) = launch.call()
    dout = GRADIENTS[kind](rng, (*q.shape[:3], v.shape[3]), v).astype(np.float32)
    if launch.kernel.dtype == "float16":
        dout = np.clip(dout, -1000, 1000)
    options = Options(**{name: x for name, x in launch.options.items() if name in _OPTIONS})
    sinks = None if launch.sinks is None else launch.sinks.astype(np.float32)
    with np.errstate(all="ignore"):
        inputs = of_forward(dout.astype(q.dtype), q, k, v, options, sinks)
    more: dict[str, Any] = {"out_dtype": "float32"} if number % 3 == 1 else {}
    if number % 2:
        more["num_splits"] = 2 + number % 5  # of query heads, of rows, of both
    return Call(inputs, options, launch.kernel.dtype, more)


def least(name: str, seed: int) -> int:
    """The number of the smallest of a class's first calls."""

    def size(number: int) -> int:
        launch = made(name, number, seed)
        return launch.rows * launch.keys * launch.heads[0] * sum(launch.dims)

    return min(range(4), key=size)


def sweep(names: list[str], cases: int, seed: int) -> Iterator[tuple[str, int, Call]]:
    """Launches of each class in turn, until there are so many heads of q."""
    done = number = 0
    while done < cases:
        for name in names:
            call = adversary(name, number, seed)
            done += call.inputs.q.shape[2]
            yield name, number, call
        number += 1
