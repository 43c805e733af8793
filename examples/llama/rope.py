"""Angles of rotary positions: the laws by which checkpoints stretch them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import ModelError

Array = NDArray[np.float64]
# Fields of each law: those it needs, and those it may have.
_FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("factor",), ()),
    "llama3": (
        ("factor", "low_freq_factor", "high_freq_factor"),
        ("original_max_position_embeddings",),
    ),
    "yarn": (
        ("factor",),
        (
            *("original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow"),
            *("mscale", "mscale_all_dim", "truncate"),
        ),
    ),
}


@dataclass(frozen=True)
class Rope:
    """Rotary positions of a model: how fast each pair of channels turns.

    Attributes
    ----------
    law : str
        "default", "linear", "dynamic", "llama3" or "yarn".
    trained : int
        Positions that the model was trained with before they were stretched.
    """

    dim: int
    theta: float
    law: str
    trained: int
    fields: Mapping[str, float]

    @property
    def changes_with_length(self) -> bool:
        """Whether all angles are others once a sequence is longer than `trained`."""
        return self.law == "dynamic"

    def longest(self, positions: int) -> int:
        """Positions that the law stretches to, of a model that names so many."""
        if self.law in ("linear", "dynamic"):
            return int(positions * self.fields["factor"])
        if self.law == "yarn":
            return max(positions, int(self.trained * self.fields["factor"]))
        return positions

    def tables(self, positions: int) -> tuple[Array, Array]:
        """Cosines and sines of each position, (positions, dim / 2).

        With a law that changes with the length, position p is turned as in a sequence of p + 1:
        as a token is that is generated there.
        """
        frequencies, scale = _LAWS[self.law](self)
        at = np.arange(positions)[:, None]
        turns = at * frequencies
        if self.changes_with_length:
            beyond = at[self.trained :]
            turns[self.trained :] = beyond * _stretched(self, beyond + 1)
        return np.cos(turns) * scale, np.sin(turns) * scale


def parse(given: Mapping[str, Any], theta: float, dim: int, positions: int) -> Rope:
    """The law that a `rope_scaling` or `rope_parameters` of config.json names.

    Raises
    ------
    ModelError
        An unknown law, or fields that it lacks or that it does not have.
    """
    law = given.get("rope_type", given.get("type", "default"))
    if law not in _FIELDS:
        raise ModelError(f"rope_type={law!r} of config.json must be one of {', '.join(_FIELDS)}")
    needed, optional = _FIELDS[law]
    fields = {
        name: value
        for name, value in given.items()
        if name not in ("rope_type", "type", "rope_theta") and value is not None
    }
    for name in needed:
        if name not in fields:
            raise ModelError(f"rope_type={law!r} of config.json needs {name}")
    for name, value in fields.items():
        # A file may repeat what the default law has no use for; nothing else is left out silently.
        if name not in needed + optional:
            raise ModelError(f"rope_type={law!r} of config.json has an unknown {name}={value!r}")
        if not isinstance(value, int | float):
            raise ModelError(f"{name}={value!r} of rope_type={law!r} must be a number")
    if fields.get("factor", 1.0) < 1:
        raise ModelError(f"factor={fields['factor']} of rope_type={law!r} must be at least 1")
    trained = int(fields.get("original_max_position_embeddings", positions))
    return Rope(dim, theta, law, trained, fields)


def _plain(base: float | Array, dim: int) -> Array:
    found: Array = base ** -(np.arange(0, dim, 2) / dim)
    return found


def _default(rope: Rope) -> tuple[Array, float]:
    return _plain(rope.theta, rope.dim), 1.0


def _linear(rope: Rope) -> tuple[Array, float]:
    return _plain(rope.theta, rope.dim) / rope.fields["factor"], 1.0


def _stretched(rope: Rope, length: NDArray[np.int64]) -> Array:
    """Of sequences longer than those of the training: a greater base, so that all turn less."""
    factor = rope.fields["factor"]
    grown = factor * length / rope.trained - (factor - 1)
    return _plain(rope.theta * grown ** (rope.dim / (rope.dim - 2)), rope.dim)


def _llama3(rope: Rope) -> tuple[Array, float]:
    """Short waves as they are, long ones slower by the factor, between them a blend."""
    low, high = rope.fields["low_freq_factor"], rope.fields["high_freq_factor"]
    if low >= high:
        raise ModelError(f"low_freq_factor={low} must be below high_freq_factor={high}")
    frequencies = _plain(rope.theta, rope.dim)
    waves = rope.trained * frequencies / (2 * math.pi)  # in the trained length
    kept = np.clip((waves - low) / (high - low), 0, 1)
    return frequencies * (kept + (1 - kept) / rope.fields["factor"]), 1.0


def _yarn(rope: Rope) -> tuple[Array, float]:
    """As `_llama3`, blended by the channel instead of its wave; and sharper scores."""
    fields, factor = rope.fields, rope.fields["factor"]

    def channel(turns: float) -> float:
        """That turns so often in the trained length."""
        ratio = math.log(rope.trained / (turns * 2 * math.pi)) / math.log(rope.theta)
        return rope.dim * ratio / 2

    first, last = channel(fields.get("beta_fast") or 32), channel(fields.get("beta_slow") or 1)
    if fields.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.dim - 1)
    last += 0.001 * (first == last)
    slowed = np.clip((np.arange(rope.dim // 2) - first) / (last - first), 0, 1)
    frequencies = _plain(rope.theta, rope.dim)

    def sharpness(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    scale = fields.get("attention_factor")
    if scale is None:
        scale = sharpness(1.0)
        if fields.get("mscale") and fields.get("mscale_all_dim"):
            scale = sharpness(fields["mscale"]) / sharpness(fields["mscale_all_dim"])
    return frequencies * (slowed / factor + 1 - slowed), float(scale)


_LAWS: dict[str, Callable[[Rope], tuple[Array, float]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _default,
    "llama3": _llama3,
    "yarn": _yarn,
}
