"""Activations times factors, kernel by kernel: float64, every number, and what is not written."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.op.comparison import judge
from amdattn.ops import registry
from amdattn.ops.gated.cases import GatedCase
from amdattn.ops.gated.gated import GatedPlan
from amdattn.ops.gated.planning import GATED_ACTIVATION
from amdattn.ops.gated.problem import ACTIVATIONS, GatedProblem
from amdattn.ops.gemm.cases import activated
from tests.support import shipped
from tests.support.framed import Framed
from tests.support.kernel_sweep import run_on

OPERATION = registry.operation("gated_activation")
KERNELS = {row.name: row for row in shipped.shipped(GATED_ACTIVATION)}
OTHERS = [arch for arch in ("gfx942", "gfx950") if arch != shipped.props().arch]
TYPES = (ml_dtypes.bfloat16, np.float16)


def plan_of(case: GatedCase) -> GatedPlan:
    plan = OPERATION.plan_case(case, amdattn.device_props(), manifest.kernels())
    assert isinstance(plan, GatedPlan)
    return plan


def check(case: GatedCase, apart: int = 3) -> None:
    """Results in the midst of poison; in place the same bits."""
    inputs = case.inputs(5)
    shape, element = inputs["gate"].shape, inputs["gate"].dtype
    gate, up = (Framed(inputs[name], apart=apart + i) for i, name in enumerate(("gate", "up")))
    out = Framed(shape, element, apart=apart + 2)
    plan_of(case).run(gate.inner, up.inner, out=out.inner)
    found, (must,) = out.taken(), OPERATION.reference(case, inputs).values()
    result = judge(found, must.values, must.tolerance, 0.0)
    assert result, f"{case.title}: {result.reason}"
    p = case.problem
    over = GatedProblem(p.shape, p.columns, p.dtype, p.activation, in_place=True)
    for own in (gate, up):
        before = own.taken()
        plan_of(GatedCase(over, kernel=case.kernel)).run(gate.inner, up.inner, out=own.inner)
        np.testing.assert_array_equal(own.taken().view(np.uint16), found.view(np.uint16))
        own.put(before)


@pytest.mark.parametrize("name", KERNELS)
def test_results(name: str) -> None:
    for case in OPERATION.cases(KERNELS[name]):
        assert isinstance(case, GatedCase)
        check(case)


@pytest.mark.parametrize("name", KERNELS)
def test_checked(name: str) -> None:
    """No finding in checked mode, of whole rows and of others, in place and not."""
    with amdattn.virtual.check():
        for case in list(OPERATION.cases(KERNELS[name]))[1::3]:
            assert isinstance(case, GatedCase)
            check(case)


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 15, 17, 63, 65, 511, 513, 2047, 2049, 4100])
def test_rows_around_chunks_and_waves(columns: int, rows: int) -> None:
    for i, activation in enumerate(ACTIVATIONS):
        dtype = ("bfloat16", "float16")[(columns + rows + i) % 2]
        check(GatedCase(GatedProblem((rows,), columns, dtype, activation)), apart=1 + i)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_number(dtype: Any, activation: str) -> None:
    """Every gate: one rounding, denormal results and infinities right, NaN where they are."""
    gate = np.arange(65536, dtype=np.uint16).view(dtype)[None]
    plan = amdattn.plan_gated_activation(
        1, gate.size, dtype=np.dtype(dtype).name, activation=activation, device="MI300X"
    )
    for factor in (1.0, -3.0, 2.0**-7):
        out = plan.run(gate, np.full_like(gate, factor)).astype(np.float64)
        with np.errstate(all="ignore"):
            wide = gate.astype(np.float32).astype(np.float64)
            must = activated(activation, wide) * factor
            exact = must.astype(np.float32).astype(dtype).astype(np.float64)
        np.testing.assert_array_equal(np.isnan(out), np.isnan(must))
        known = np.isfinite(exact)
        info = ml_dtypes.finfo(dtype)
        least = float(info.smallest_subnormal) / 2
        bound = np.abs(must[known]) * (float(info.eps) / 2 + 2.0**-17) + 1.01 * least
        assert (np.abs(out[known] - must[known]) <= bound).all()
        beyond = np.isinf(exact)
        np.testing.assert_array_equal(out[beyond], exact[beyond])


def test_the_same_bits_in_any_order() -> None:
    x = np.random.default_rng(1).standard_normal((40, 2 * 3001), np.float32).astype(TYPES[0])
    found = set()
    for seed in (0, 1, 7):
        try:
            amdattn.virtual.set_option("seed", seed)
            found.add(amdattn.silu_and_mul(x).tobytes())
        finally:
            amdattn.virtual.set_option("seed", 0)
    assert len(found) == 1


@pytest.mark.parametrize("dtype", TYPES)
def test_no_more_than_twice_the_error_of_float32(dtype: Any) -> None:
    """Of float32 arithmetic that is rounded once, as a pipeline without this kernel has it."""
    rng = np.random.default_rng(2)
    gate, up = (rng.standard_normal((64, 500), np.float32).astype(dtype) for _ in range(2))
    wide, factor = gate.astype(np.float32), up.astype(np.float32)
    plain = (wide / (1 + np.exp(-wide)) * factor).astype(dtype).astype(np.float64)
    exact = activated("silu", gate.astype(np.float64)) * up.astype(np.float64)
    found = amdattn.silu_and_mul(gate, up).astype(np.float64)
    assert np.abs(found - exact).max() <= 2 * np.abs(plain - exact).max()
    assert np.square(found - exact).mean() <= 1.01 * np.square(plain - exact).mean()


@pytest.mark.parametrize("arch", OTHERS)
def test_every_kernel_of_the_other_architecture(arch: str) -> None:
    found = run_on(arch, "--cases=12", "--checked", f"--names={GATED_ACTIVATION}_*", timeout=600)
    assert found["wrong"] == []
    own = {
        row.name for row in manifest.kernels() if row.arch == arch and row.op == GATED_ACTIVATION
    }
    assert own <= set(found["launched"])
