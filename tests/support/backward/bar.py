"""When are gradients right: beside float64 and the plain pipeline, by row and by column.

The bar: error <= 2 max(plain's, u sqrt(sum of the squares of the products that are summed)) + half
a ULP of the result and what float32 leaves open of scores, dP and delta (`float32_errors`), u the
unit roundoff of the type, as root mean square and as maximum, over every row, and over every column
that has 64 rows or more. What float64 and plain have finite must be; not judged are rows whose
scores are so far from 0 that float32 has none of their digits. Where a result is beyond its type,
or may be by what float32 leaves open, an infinite one counts as the least number that rounds to it:
of the other sign, or no number, it is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from amdattn.ops.attention_backward.reference import (
    Gradients,
    Inputs,
    Options,
    float32_errors,
    gradients,
    gradients_rounded,
    of_forward,
    spreads,
)
from tests.support.adversary.plain import Array, Rules

FACTOR = 2.0
LEAST_ROWS = 64  # of a column that is judged
NAMES = ("dq", "dk", "dv")


@dataclass(frozen=True)
class Truth:
    """What gradients of a call are held against."""

    best: Gradients
    usual: Gradients
    noise: Gradients
    open: Gradients
    rules: Rules

    @staticmethod
    def of(inputs: Inputs, options: Options, dtype: str) -> Truth:
        """`best` is of the exact o and lse: attention is differentiated, not its rounding."""
        exact = of_forward(
            *(inputs.dout, inputs.q, inputs.k, inputs.v, options, inputs.sinks),
            exact=True,
            dlse=inputs.dlse,
        )
        rules = Rules(dtype, "rtne", options.scale(inputs.q.shape[-1]))
        return Truth(
            gradients(exact, options),
            gradients_rounded(inputs, options),
            spreads(exact, options),
            float32_errors(exact, options),
            rules,
        )


def ratios(found: Mapping[str, Array], by: Truth) -> dict[str, float]:
    """The worst error beside what is allowed, by result and kind; above 1 it is wrong.

    Parameters
    ----------
    found : mapping
        Dq, dk, dv, of one of the types, and dsinks.
    """
    worst: dict[str, float] = {}
    for name in NAMES:
        x = found[name].astype(np.float64)
        best, usual, noise = (getattr(of, name) for of in (by.best, by.usual, by.noise))
        usual = usual.astype(np.float64)
        left_open = getattr(by.open, name)
        end = _end(found[name].dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            beyond = np.abs(best) + left_open >= end
        too = beyond & np.isinf(usual) & (np.sign(usual) == np.sign(best))  # as plain's is
        judged = np.isfinite(best) & np.isfinite(left_open) & (np.isfinite(usual) | too)
        x, best, usual = (np.where(beyond, np.clip(of, -end, end), of) for of in (x, best, usual))
        wrong = judged & ~np.isfinite(x)
        worst[f"{name} not finite"] = np.inf if wrong.any() else 0.0
        judged &= np.isfinite(x) & np.isfinite(noise)
        expected = np.where(judged, best, 0)
        with np.errstate(invalid="ignore", over="ignore"):
            error = np.where(judged, np.abs(x - best), 0)
            of_plain = np.where(judged, np.abs(usual - best), 0)
        u_noise = np.where(judged, by.rules.unit * noise, 0)
        last = np.where(judged, by.rules.ulp(expected) / 2, 0)
        if found[name].dtype == np.float32:
            last = last * 2.0**-12
        last = last + np.where(judged, left_open, 0)
        for kind, axis in (("row", 3), ("column", 1)):
            if kind == "column" and x.shape[1] < LEAST_ROWS:
                continue
            count = np.maximum(judged.sum(axis), 1)

            def rms(e: Array, axis: int = axis, count: Array = count) -> Array:
                found: Array = np.sqrt((e * e).sum(axis) / count)
                return found

            def most(e: Array, axis: int = axis) -> Array:
                found: Array = e.max(axis, initial=0)
                return found

            for title, measure in (("rms", rms), ("max", most)):
                allowed = FACTOR * np.maximum(measure(of_plain), measure(u_noise)) + measure(last)
                ratio = np.where(
                    measure(error) == 0, 0.0, measure(error) / np.maximum(allowed, 1e-300)
                )
                worst[f"{name} {kind} {title}"] = float(ratio.max(initial=0))
    if by.best.dsinks is not None:
        worst["dsinks"] = _of_sinks(found["dsinks"], by)
    return worst


def _end(dtype: Any) -> float:
    """The least number that rounds to infinity."""
    info = ml_dtypes.finfo(dtype)
    return float(info.max) + float(2.0 ** (info.maxexp - info.nmant - 2))


def _of_sinks(dsinks: Array, by: Truth) -> float:
    assert by.best.dsinks is not None and by.usual.dsinks is not None
    assert by.noise.dsinks is not None and by.open.dsinks is not None
    judged = np.isfinite(by.best.dsinks) & np.isfinite(by.usual.dsinks)
    judged &= np.isfinite(by.open.dsinks)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(np.where(judged, dsinks - by.best.dsinks, 0))
        of_plain = np.abs(np.where(judged, by.usual.dsinks - by.best.dsinks, 0))
    noise = np.where(judged, by.noise.dsinks, 0)
    allowed = FACTOR * np.maximum(of_plain, 2.0**-20 * noise) + 1e-30
    allowed += np.where(judged, by.open.dsinks, 0)
    return float((error / allowed).max(initial=0))


def complaints(found: Mapping[str, Any], by: Truth) -> list[str]:
    """What does not hold."""
    return [f"{kind} {ratio:.3g}" for kind, ratio in ratios(found, by).items() if not ratio <= 1]
