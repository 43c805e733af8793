"""Activations of every number of the types, infinities, NaN and denormals among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.ops.gemm.cases import GemmCase, expected
from amdattn.ops.gemm.problem import FACTORS, GemmProblem
from tests.support import gemm_patterns, shipped
from tests.support.fake_rocm import run

OTHERS = [name for name in ARCHITECTURES if name != shipped.props().arch]


@pytest.mark.parametrize("suffix", ["", FACTORS], ids=["alone", "with factors"])
@pytest.mark.parametrize("name", gemm_patterns.ACTIVATIONS)
@pytest.mark.parametrize("element", gemm_patterns.ELEMENTS)
def test_every_number(element: Any, name: str, suffix: str) -> None:
    assert not len(gemm_patterns.wrong(element, name + suffix))


@pytest.mark.parametrize("arch", OTHERS)
def test_every_number_elsewhere(arch: str) -> None:
    code = "from tests.support.gemm_patterns import main; main()"
    status, lines, errors = run(code, AMDATTN_DEVICE=f"virtual:{arch}")
    assert (status, lines) == (0, []), errors


@pytest.mark.parametrize("name", gemm_patterns.ACTIVATIONS)
def test_the_reference_of_checks(name: str) -> None:
    """What `amdattn selftest` holds results against."""
    element = gemm_patterns.ELEMENTS[0]
    rows = gemm_patterns.numbers(element)
    problem = GemmProblem(1, len(rows), 1, activation=name)
    with np.errstate(all="ignore"):
        found = expected(GemmCase(problem), {"a": np.ones((1, 1), element), "b": rows[:, None]})
    best = gemm_patterns.definition(name, rows)
    np.testing.assert_allclose(found["out"].values[0], best, rtol=1e-12)
