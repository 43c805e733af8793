"""Rows of a table kernel by kernel: their bytes, and what may not be written."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.ops import registry
from amdattn.ops.embedding.cases import EmbeddingCase
from amdattn.ops.embedding.embedding import EmbeddingPlan
from amdattn.ops.embedding.planning import EMBEDDING
from amdattn.ops.embedding.problem import EmbeddingProblem
from tests.support import shipped
from tests.support.framed import Framed
from tests.support.kernel_sweep import run_on

OPERATION = registry.operation("embedding")
KERNELS = {row.name: row for row in shipped.shipped(EMBEDDING)}
OTHERS = [arch for arch in ("gfx942", "gfx950") if arch != shipped.props().arch]


def check(case: EmbeddingCase, apart: int = 3) -> None:
    """Rows in the midst of poison, the table's as well; of any bits."""
    plan = OPERATION.plan_case(case, amdattn.device_props(), manifest.kernels())
    assert isinstance(plan, EmbeddingPlan)
    inputs = case.inputs(5)
    bits = np.random.default_rng(1).integers(0, 256, inputs["table"].view(np.uint8).shape, np.uint8)
    table = Framed(bits.view(inputs["table"].dtype), apart=apart)
    out = Framed((*case.problem.shape, case.problem.columns), inputs["table"].dtype, apart + 2)
    plan.run(table.inner, amdattn.asarray(inputs["indices"]), out=out.inner)
    must = bits[inputs["indices"]]
    np.testing.assert_array_equal(out.taken().view(np.uint8), must)


@pytest.mark.parametrize("name", KERNELS)
def test_bytes(name: str) -> None:
    for case in OPERATION.cases(KERNELS[name]):
        assert isinstance(case, EmbeddingCase)
        check(case)


@pytest.mark.parametrize("name", KERNELS)
def test_checked(name: str) -> None:
    """No finding in checked mode."""
    with amdattn.virtual.check():
        for case in list(OPERATION.cases(KERNELS[name]))[::2]:
            assert isinstance(case, EmbeddingCase)
            check(case)


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 127, 129, 511, 513, 4097])
def test_rows_around_chunks(columns: int) -> None:
    for i, dtype in enumerate(("bfloat16", "float16", "float32")):
        check(EmbeddingCase(EmbeddingProblem((2, 3 + i), columns, 9, dtype)), apart=1 + i)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
@pytest.mark.parametrize("wrong", [-1, 5, 2**31 - 1, -(2**31), 2**32 + 1, -(2**40)])
def test_an_index_that_the_table_has_not(wrong: int, dtype: type) -> None:
    """NaN in its row, a report in checked mode, the others as without; of 64 bits none wraps."""
    table = np.random.default_rng(0).standard_normal((5, 77), np.float32).astype(dtype)
    indices = np.array([4, wrong, 0], np.int64)
    given = amdattn.asarray(indices if abs(wrong) > 2**31 else indices.astype(np.int32))
    with amdattn.virtual.check(raise_on=None) as found:
        out = amdattn.embedding(amdattn.asarray(table), given)
        amdattn.synchronize()
    assert {finding.kind for finding in found.errors} == {"trap"}
    got = out.numpy()
    assert np.isnan(got[1].astype(np.float32)).all()
    np.testing.assert_array_equal(got[[0, 2]], table[[4, 0]])


@pytest.mark.parametrize("arch", OTHERS)
def test_every_kernel_of_the_other_architecture(arch: str) -> None:
    found = run_on(arch, "--cases=6", "--checked", f"--names={EMBEDDING}_*", timeout=600)
    assert found["wrong"] == []
    own = {row.name for row in manifest.kernels() if row.arch == arch and row.op == EMBEDDING}
    assert own <= set(found["launched"])
