"""Tables of angles: the laws by which models stretch positions, each by its definition."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from amdattn import rotary_tables

ROWS = 50


def angles(dim: int, base: float = 10000.0) -> Any:
    return np.arange(ROWS)[:, None] / base ** (np.arange(0, dim, 2) / dim)


def held(found: Any, must: Any, factor: float = 1.0) -> None:
    for one, function in zip(found, (np.cos, np.sin), strict=True):
        np.testing.assert_allclose(one, factor * function(must), atol=1e-7 * factor)


def test_without_a_law() -> None:
    held(rotary_tables(ROWS, 64), angles(64))
    held(rotary_tables(ROWS, 128, 500000.0, {"rope_type": "default"}), angles(128, 500000.0))
    cos, sin = rotary_tables(3, 2, dtype="bfloat16")
    assert cos.dtype.name == sin.dtype.name == "bfloat16" and cos.shape == (3, 1)


def test_linear() -> None:
    held(rotary_tables(ROWS, 64, rope_scaling={"type": "linear", "factor": 4.0}), angles(64) / 4)


@pytest.mark.parametrize("most", [20, 50, 100])
def test_dynamic(most: int) -> None:
    """Another base, where there are more positions than the model was trained for."""
    rows, dim = max(ROWS, most), 64
    base = 10000.0 * (2 * rows / most - 1) ** (dim / (dim - 2))
    found = rotary_tables(
        ROWS, dim, rope_scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=most
    )
    held(found, angles(dim, base))


def test_llama3() -> None:
    """Pair by pair: long waves by the factor, short ones not, those between in between."""
    low, high, factor, original, dim, base = 1.0, 4.0, 8.0, 8192, 128, 500000.0
    inverse = []
    for i in range(dim // 2):
        frequency = base ** (-2 * i / dim)
        length = 2 * math.pi / frequency
        if length < original / high:
            inverse.append(frequency)
        elif length > original / low:
            inverse.append(frequency / factor)
        else:
            smooth = (original / length - low) / (high - low)
            inverse.append((1 - smooth) * frequency / factor + smooth * frequency)
    law = {"rope_type": "llama3", "factor": factor, "low_freq_factor": low}
    law |= {"high_freq_factor": high, "original_max_position_embeddings": original}
    found = rotary_tables(ROWS, dim, base, law)
    held(found, np.arange(ROWS)[:, None] * np.array(inverse))
    assert len({round(f / g, 9) for f, g in zip(inverse, angles(dim, base)[1], strict=True)}) > 3


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(
    "more", [{}, {"mscale": 0.7, "mscale_all_dim": 1.0}, {"attention_factor": 2.0}]
)
def test_yarn(more: Any, truncate: bool) -> None:
    factor, original, dim, base = 4.0, 32768, 128, 1000000.0
    low, high = (
        dim * math.log(original / (t * 2 * math.pi)) / (2 * math.log(base)) for t in (32, 1)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    inverse = []
    for i in range(dim // 2):
        frequency, ramp = base ** (-2 * i / dim), min(1.0, max(0.0, (i - low) / (high - low)))
        inverse.append(frequency / factor * ramp + frequency * (1 - ramp))
    multiplied = {
        0: 0.1 * math.log(factor) + 1,
        1: 2.0,
        2: (0.07 * math.log(factor) + 1) / (0.1 * math.log(factor) + 1),
    }[len(more)]
    law = {"rope_type": "yarn", "factor": factor, "truncate": truncate, **more}
    law |= {"original_max_position_embeddings": original}
    held(
        rotary_tables(ROWS, dim, base, law),
        np.arange(ROWS)[:, None] * np.array(inverse),
        multiplied,
    )
    del law["original_max_position_embeddings"]
    held(
        rotary_tables(ROWS, dim, base, law, max_position_embeddings=original),
        np.arange(ROWS)[:, None] * np.array(inverse),
        multiplied,
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"rows": 0}, "rows=0 must be at least 1"),
        ({"rotary_dim": 7}, "rotary_dim=7 must be even"),
        ({"base": 1.0}, "base=1.0 must be above 1"),
        ({"dtype": "int32"}, "dtype=int32 must be float32"),
        (
            {"rope_scaling": {"type": "longrope"}},
            "rope_type 'longrope'; it must be default, linear",
        ),
        ({"rope_scaling": {"type": "linear"}}, "has no 'factor'"),
        ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "'factor'\\]=0.5 must be at least 1"),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2}},
            "max_position_embeddings must be given",
        ),
        ({"rope_scaling": {"type": "yarn", "factor": 2}}, "no 'original_max_position_embeddings'"),
        ({"rope_scaling": {"type": "llama3", "factor": 2}}, "has no"),
    ],
)
def test_refusals(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        rotary_tables(**{"rows": 4, "rotary_dim": 8, **given})
