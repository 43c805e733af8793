"""Outputs that share memory with inputs, or with themselves, are refused; others never are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdattn
from amdattn.arrays import overlap
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.views import View
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.problem import GemmProblem
from tests.support.gemm_family import SMALL, planned

BF16 = as_dtype("bfloat16")
BASE = 1 << 32
# numpy's solver gives up on them; rows of 128 elements, at most 86016 and 61.
HARD = (
    ((7, 3, 4096, 128), (1564864, 1446192, 430832, 1), 0),
    ((1, 61, 4096, 128), (373624, 626896, 907312, 1), 1127456),
)


def view(shape, strides, start=0):
    return View(BASE + start, shape, strides, BF16, False, None, ordinal=0)


def elements(x):
    """Addresses of all elements."""
    at = np.array([x.address])
    for length, step in zip(x.shape, x.strides, strict=True):
        at = np.add.outer(at, np.arange(length) * step * x.dtype.itemsize)
    return at.ravel()


SMALL_VIEWS = st.builds(
    lambda lengths, steps, row, start: view((*lengths, row), (*steps, 1), 2 * start),
    st.tuples(*[st.integers(1, 5)] * 3),
    st.tuples(*[st.integers(-40, 40)] * 3),
    st.integers(1, 6),
    st.integers(0, 200),
)


@settings(deadline=None, max_examples=200)
@given(a=SMALL_VIEWS, b=SMALL_VIEWS)
@pytest.mark.parametrize("budget", [100_000, 1], ids=["solver", "rows"])
def test_the_answer_is_that_of_the_elements(budget, a, b):
    """With the solver's budget gone the rows themselves are looked at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "_SOLVER_WORK", budget)
        assert overlap.share_memory(a, b) == bool(np.intersect1d(elements(a), elements(b)).size)
        assert overlap.repeats_elements(a) == (np.unique(elements(a)).size < elements(a).size)


@pytest.mark.parametrize("shift", [-130, -128, -127, -1, 0, 1, 127, 128, 130])
@pytest.mark.parametrize("row", [0, 401, 100_000 + 50_000 + 4 * 400])
def test_neighbouring_rows(row, shift, monkeypatch):
    """Rows that touch do not overlap; an element in common is enough."""
    monkeypatch.setattr(overlap, "_SOLVER_WORK", 1)
    a = view((3, 2, 5, 128), (100_000, 50_000, 400, 1), 2000)
    b = view((1, 1, 1, 128), (7, 7, 7, 1), 2000 + 2 * (row + shift))
    expected = bool(np.intersect1d(elements(a), elements(b)).size)
    assert overlap.share_memory(a, b) == overlap.share_memory(b, a) == expected


def test_questions_that_numpy_finds_too_hard(monkeypatch):
    (shape_a, strides_a, start_a), (shape_b, strides_b, start_b) = HARD
    a, b = view(shape_a, strides_a, start_a), view(shape_b, strides_b, start_b)
    one, other = (
        np.asarray(overlap.RawMemory(x.address, x.shape, x.strides, BF16, None, True))
        for x in (a, b)
    )
    with pytest.raises(np.exceptions.TooHardError):
        np.shares_memory(one, other, max_work=overlap._SOLVER_WORK)
    rows_a, rows_b = elements(a)[::128], elements(b)[::128]
    meets = any((np.abs(rows_a - row) < 256).any() for row in rows_b)
    assert overlap.share_memory(a, b) == overlap.share_memory(b, a) == meets
    monkeypatch.setattr(overlap, "_MAX_ROWS", 1000)
    assert overlap.share_memory(a, b) is None


@pytest.mark.device
def test_what_cannot_be_told_is_refused(monkeypatch, launches):
    """Never taken for "no overlap"."""
    memory = amdattn.empty((1 << 16,))

    def placed(strides, start):
        x = memory.view()
        address = x.address + 2 * start
        return amdattn.DeviceArray(address, (1, 6, 4, 128), strides, x.dtype, memory._memory)

    q, out = placed((0, 640, 4096, 1), 0), placed((0, 768, 5120, 1), 128)
    k = amdattn.asarray(np.ones((1, 6, 4, 128), ml_dtypes.bfloat16))
    monkeypatch.setattr(overlap, "_SOLVER_WORK", 1)
    monkeypatch.setattr(overlap, "_MAX_ROWS", 4)
    with pytest.raises(ValueError, match=r"out .* and q .* takes too long to tell whether they"):
        amdattn.flash_attn_func(q, k, k, out=out)
    crossed = placed((0, 640, 768, 1), 0)
    with pytest.raises(ValueError, match=r"out has shape .* takes too long to tell whether its"):
        amdattn.flash_attn_func(k, k, k, out=crossed)
    assert launches == []
    monkeypatch.undo()
    amdattn.flash_attn_func(k, k, k, out=crossed)  # rows of two axes that never meet
    amdattn.synchronize()


# -- of every operand ------------------------------------------------------------------------------


def device(*shape, dtype="bfloat16"):
    """An operand with much memory of its own behind it."""
    memory = amdattn.empty((1 << 21,), "uint8")
    strides = compact_strides(shape)
    return amdattn.DeviceArray(memory.address, shape, strides, as_dtype(dtype), memory._memory)


def over(array, shape, dtype):
    """An output that begins with the last bytes of `array`."""
    last = array.address + array.nbytes - 1
    strides = compact_strides(shape)
    return amdattn.DeviceArray(last // 16 * 16, shape, strides, as_dtype(dtype), array._memory)


@pytest.mark.parametrize("on", ["a", "b", "bias"])
@pytest.mark.parametrize("output", ["out", "workspace"])
def test_outputs_of_gemm(on, output, launches):
    plan = planned(GemmProblem(3, 20, 256, bias=True, split_k=2), SMALL)
    operands = {"a": device(3, 256), "b": device(20, 256), "bias": device(20)}
    shape, dtype = ((3, 20), "bfloat16") if output == "out" else (
        (plan.workspace.total_bytes,), "uint8"
    )  # fmt: skip
    with pytest.raises(ValueError, match=f"{output} overlaps {on} in memory"):
        plan.run(**operands, **{output: over(operands[on], shape, dtype)})
    assert launches == []


def test_workspace_of_gemm_over_its_result(launches):
    plan = planned(GemmProblem(3, 20, 256, split_k=2), SMALL)
    workspace = device(plan.workspace.total_bytes, dtype="uint8")
    out = over(workspace, (3, 20), "bfloat16")
    with pytest.raises(ValueError, match="workspace overlaps out in memory"):
        plan.run(device(3, 256), device(20, 256), out, workspace=workspace)
    assert launches == []


@pytest.mark.parametrize("on", ["q", "k", "v", "sinks"])
@pytest.mark.parametrize("output", ["out", "lse", "workspace"])
def test_outputs_of_attention(on, output, launches):
    plan = amdattn.plan_attention(
        *(1, 16, 24, 2, 2, 128),
        device=amdattn.device_props(),
        num_splits=2,
        return_lse=True,
        sinks=True,
    )
    operands = {name: device(1, 24, 2, 128) for name in "kv"} | {"q": device(1, 16, 2, 128)}
    operands["sinks"] = device(2, dtype="float32")
    shape, dtype = {
        "out": ((1, 16, 2, 128), "bfloat16"),
        "lse": ((1, 2, 16), "float32"),
        "workspace": ((plan.workspace.total_bytes,), "uint8"),
    }[output]
    with pytest.raises(ValueError, match=f"{output} overlaps {on} in memory"):
        plan.run(**operands, **{output: over(operands[on], shape, dtype)})
    assert launches == []


@pytest.mark.parametrize("on", ["cu_seqlens_q", "cu_seqlens_k"])
def test_outputs_of_attention_over_lengths(on, launches):
    plan = amdattn.plan_attention(
        *(1, 16, 24, 2, 2, 128), device=amdattn.device_props(), total_q=16, total_kv=24
    )
    operands = {"q": device(16, 2, 128), "k": device(24, 2, 128), "v": device(24, 2, 128)}
    operands |= {name: device(2, dtype="int32") for name in ("cu_seqlens_q", "cu_seqlens_k")}
    with pytest.raises(ValueError, match=f"out overlaps {on} in memory"):
        plan.run(**operands, out=over(operands[on], (16, 2, 128), "bfloat16"))
    assert launches == []
