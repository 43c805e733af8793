"""The kernels that merge parts along KV, on parts that numpy made, against float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import manifest, runtime
from amdattn.op import launch
from amdattn.op.plan import Operand
from amdattn.ops.attention.execution import AttentionPlan
from amdattn.ops.attention.planning import plan_attention
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import ATTENTION
from tests.support.adversary.launches import Kernel, kernels
from tests.support.adversary.plain import Rules, round_to
from tests.support.attention.family import Array, Guarded, Member
from tests.support.attention.rows import unmerged

LOG2E = 1.4426950408889634


@dataclasses.dataclass
class Parts:
    """Of one head: (parts, rows) references and sums, (parts, rows, columns) of O."""

    reference: Array
    sum: Array
    o: Array

    @staticmethod
    def drawn(rng: np.random.Generator, parts: int, rows: int, columns: int) -> Parts:
        reference = rng.standard_normal((parts, rows)) * 3
        total = rng.uniform(1, 1000, (parts, rows))
        o = rng.standard_normal((parts, rows, columns))
        return Parts(*(x.astype(np.float32) for x in (reference, total, o)))

    def merged(self, sink: float) -> tuple[Array, Array, Array]:
        """In float64: O, sum of p |O|, log-sum-exp in natural units."""
        wide = [x.astype(np.float64) for x in (self.reference, self.sum, self.o)]
        has = wide[1] != 0
        reference = np.where(has, wide[0] / LOG2E, -np.inf)
        base = np.maximum(reference.max(0), sink)
        with np.errstate(all="ignore"):
            base0 = np.where(np.isneginf(base), 0, base)
            weights = np.where(has, wide[1] * np.exp(reference - base0), 0)
            total = weights.sum(0) + np.exp(sink - base0)
            weights = weights / np.where(total == 0, 1, total)
            o = np.where(has[..., None], wide[2], 0)
            out = np.einsum("pr,prd->rd", weights, o)
            size = np.einsum("pr,prd->rd", weights, np.abs(o))
            return out, size, base0 + np.log(total)


def _plan(kernel: Kernel, rows: int, parts: int, sinks: bool) -> Any:
    options: dict[str, Any] = {"softcap": 30.0} if kernel.is_capped else {}
    dim_v = min(kernel.head_dim, 128)
    problem = AttentionProblem(
        *(1, rows, 32 * parts, 1, 1, kernel.head_dim, dim_v, kernel.dtype),
        round_mode=kernel.mode,
        num_splits=parts,
        return_lse=True,
        sinks=sinks,
        **options,
    )
    known = [
        unmerged(row) if row.op == ATTENTION else row
        for row in manifest.kernels()
        if row.op != ATTENTION or row.name == kernel.name
    ]
    return AttentionPlan.of(plan_attention(problem, amdattn.device_props(), known))


def _merges() -> dict[str, Kernel]:
    """A forward kernel for each kernel that merges."""
    made: dict[str, Kernel] = {}
    for kernel in kernels():
        if kernel.takes_any and not kernel.is_narrow:
            made.setdefault(_plan(kernel, 1, 2, False).launches[-1].kernel.name, kernel)
    return made


KERNELS = _merges()
every_kernel = pytest.mark.parametrize("name", KERNELS)


def run(kernel: Kernel, parts: Parts, sink: float | None) -> tuple[Array, Array]:
    """O (rows, columns) as float32 and the log-sum-exp of a launch of the merge alone."""
    count, rows, columns = parts.o.shape
    plan = _plan(kernel, rows, count, sink is not None)
    forward = plan.forward.kernel
    member = Member(kernel.dtype, kernel.head_dim, columns, kernel.mode)
    # Rows behind the last one of a tile, and what belongs to rows without keys, hold NaN.
    o = np.full((count, forward.tile["q"], columns), np.nan, np.float32)
    max_sum = np.full((count, forward.tile["q"], 2), np.nan, np.float32)
    o[:, :rows], max_sum[:, :rows, 0], max_sum[:, :rows, 1] = parts.o, parts.reference, parts.sum
    memory = np.zeros(plan.workspace.total_bytes, np.uint8)
    for region, values in (("partial_o", o), ("partial_max_sum", max_sum)):
        where = plan.workspace[region]
        assert where.nbytes == values.nbytes
        memory[where.offset : where.offset + where.nbytes] = values.reshape(-1).view(np.uint8)
    workspace = amdattn.asarray(memory)
    out = Guarded((rows, columns), member.element)
    lse = Guarded((rows,), np.dtype(np.float32))
    operands = {
        "o": _operand(out.inner, batch=0, seq=out.inner.strides[0], head=0),
        "lse": _operand(lse.inner, batch=0, head=0),
        **{
            region: Operand(workspace.address + plan.workspace[region].offset, {})
            for region in ("partial_o", "partial_max_sum")
        },
    }
    operands |= {name: Operand(0, dict.fromkeys(("batch", "seq", "head"), 0)) for name in "qkv"}
    if sink is not None:
        sinks = amdattn.asarray(np.array([sink], np.float32))
        operands["sinks"] = _operand(sinks)
    amdattn.synchronize()
    launch.run(
        launch.PreparedLaunches(plan.launches).on(runtime.get())[-1:], operands, runtime.get(), 0
    )
    amdattn.synchronize()
    return out.taken().astype(np.float32), lse.taken()


def _operand(array: Any, **strides: int) -> Operand:
    return Operand(array.view().address, strides)


def hold(kernel: Kernel, parts: Parts, sink: float | None = None) -> tuple[Array, Array]:
    """Every element within one rounding and a few of float32; the same of the log-sum-exp."""
    out, lse = run(kernel, parts, sink)
    given = -np.inf if sink is None else float(np.float32(sink))
    expected, size, expected_lse = parts.merged(given)
    ulp = Rules(kernel.dtype, kernel.mode, 1.0).ulp(expected)
    ends = parts.reference[parts.sum != 0], [given * LOG2E] if abs(given) < 1e3 else []
    spread = np.ptp(np.concatenate(ends))  # whose rounding 2^ makes a relative error
    allowed = ulp * (1 if kernel.mode == "rtz" else 0.5) + (2.0**-20 + 2.0**-23 * spread) * size
    np.testing.assert_array_less(np.abs(out - expected), allowed + 2.0**-147)
    seen = np.isfinite(expected_lse)
    np.testing.assert_array_equal(lse[~seen], expected_lse[~seen])
    np.testing.assert_allclose(lse[seen], expected_lse[seen], rtol=4e-7, atol=4e-7)
    return out, lse


def drawn(kernel: Kernel, seed: int, parts: int = 3, rows: int = 37) -> Parts:
    rng = np.random.default_rng(seed)
    return Parts.drawn(rng, parts, rows, min(kernel.head_dim, 128))


@every_kernel
@pytest.mark.parametrize("sink", [None, 0.5])
def test_parts(name: str, sink: float | None) -> None:
    for count in (2, 5):
        hold(KERNELS[name], drawn(KERNELS[name], count, count), sink)


@every_kernel
def test_a_common_offset(name: str) -> None:
    """Loses nothing: differences of references are exact, their sums apart from them."""
    parts = drawn(KERNELS[name], 0)
    parts.reference = np.round(parts.reference * 4) / 4
    out, _ = hold(KERNELS[name], parts)
    for offset in (2.0**18, -(2.0**18), 3e5):
        parts.reference += np.float32(offset)
        assert hold(KERNELS[name], parts)[0].tobytes() == out.tobytes()
        parts.reference -= np.float32(offset)


@every_kernel
def test_rows_without_keys(name: str) -> None:
    """In one part or all; what such a part holds is not used."""
    kernel = KERNELS[name]
    parts = drawn(kernel, 1)
    parts.sum[0, ::2] = parts.sum[:, ::4] = 0
    parts.o[parts.sum == 0] = np.nan
    parts.reference[parts.sum == 0] = np.resize(
        np.array([np.nan, np.inf, -np.inf, 7.0], np.float32), (parts.sum == 0).sum()
    )
    out, lse = hold(kernel, parts)
    assert (out[::4] == 0).all() and np.isneginf(lse[::4]).all()
    out, lse = hold(kernel, parts, -3.0)
    assert (out[::4] == 0).all() and (lse[::4] == -3).all()


@every_kernel
@pytest.mark.parametrize("sink", [3e38, 2.4e38, 1e6, -1e6, -3e38, -np.inf])
def test_sinks_at_the_ends_of_the_range(name: str, sink: float) -> None:
    parts = drawn(KERNELS[name], 2)
    parts.sum[:, 5] = 0
    out, lse = hold(KERNELS[name], parts, sink)
    if sink > 0:
        assert (out == 0).all() and (lse == np.float32(sink)).all()
    elif np.isinf(sink):
        plain = run(KERNELS[name], parts, None)
        assert plain[0].tobytes() == out.tobytes() and plain[1].tobytes() == lse.tobytes()


@every_kernel
@pytest.mark.parametrize("nats", [60.0, 80.0, 88.0, 100.0])
def test_sinks_and_parts_far_above(name: str, nats: float) -> None:
    """Of what is below, all bits that float32 has are left."""
    kernel = KERNELS[name]
    parts = drawn(kernel, 3)
    size = np.float32(np.exp(nats) if kernel.dtype == "bfloat16" and nats < 87 else 1e4)
    parts.o *= size
    hold(kernel, parts, nats)
    parts.o[0] = 1e-8
    parts.reference[0] += np.float32(nats * LOG2E)
    hold(kernel, parts)


@every_kernel
def test_numbers_that_are_none(name: str) -> None:
    kernel = KERNELS[name]
    parts = drawn(kernel, 4)
    parts.sum[1, 3] = parts.reference[2, 9] = parts.reference[:, 10] = np.nan
    parts.o[0, 5, 8], parts.o[2, 6, 9], parts.o[:2, 7, 0] = np.inf, np.nan, (np.inf, -np.inf)
    parts.o[0, 11, 4], parts.reference[0, 11] = np.inf, -1e4
    out, lse = run(kernel, parts, None)
    expected = np.zeros(out.shape)
    expected[[3, 9, 10]] = expected[6, 9] = expected[7, 0] = expected[11, 4] = np.nan
    expected[5, 8] = np.inf
    np.testing.assert_array_equal(np.where(np.isfinite(out), 0, out), expected)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(lse)), [3, 9, 10])


@every_kernel
def test_great_numbers_do_not_overflow(name: str) -> None:
    kernel = KERNELS[name]
    parts = drawn(kernel, 5)
    parts.sum *= 1e5
    most = 3e38 if kernel.dtype == "bfloat16" else 6e4
    parts.o = (most * np.sign(parts.o)).astype(np.float32)
    hold(kernel, parts)


@every_kernel
def test_ties_of_denormal_results(name: str) -> None:
    """The mean of two parts of the same weight, rounded once."""
    kernel = KERNELS[name]
    parts = drawn(kernel, 6, 2)
    parts.reference[:], parts.sum[:] = 5, 32
    spacing = 2.0**-133 if kernel.dtype == "bfloat16" else 2.0**-24
    parts.o = (np.round(parts.o * 20) * spacing).astype(np.float32)
    out, _ = run(kernel, parts, None)
    mean = parts.o.astype(np.float64).mean(0).astype(np.float32)
    np.testing.assert_array_equal(out, round_to(mean, kernel.dtype, kernel.mode))
