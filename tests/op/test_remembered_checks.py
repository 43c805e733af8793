"""What passed its checks is remembered by every fact that they depend on, not by some of them."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.problem import GemmProblem
from tests.support.gemm_family import SMALL, planned
from tests.support.handmade import READ_ONLY, tensor_at

SHAPE = (1, 16, 2, 128)


def test_facts_tell_views_apart():
    base = {
        "address": 256,
        "shape": (3, 8),
        "strides": (8, 1),
        "dtype": as_dtype("bfloat16"),
        "read_only": False,
        "owner": None,
        "array": None,
        "ordinal": 0,
    }
    others = {
        "address": 512,
        "shape": (2, 8),
        "strides": (16, 1),
        "dtype": as_dtype("float16"),
        "read_only": True,
        "ordinal": None,
    }
    known = View(**base).facts
    assert known == View(**base).facts and hash(known) == hash(View(**base).facts)
    for name, value in others.items():
        assert View(**{**base, name: value}).facts != known, name
    # `owner` only keeps the memory alive; memory of the host has an array, and no number.
    assert set(others) | {"owner", "array", "facts"} == {f.name for f in dataclasses.fields(View)}


def seen_as(array, dtype):
    """The same memory as elements of another type of the same size."""
    view = array.view()
    return amdattn.DeviceArray(
        view.address, view.shape, view.strides, as_dtype(dtype), array._memory
    )


def forbidden(array):
    """The same memory, which must not be written."""
    where = (10, runtime.get().ordinal)
    codes = {"bfloat16": (4, 16), "float32": (2, 32), "uint8": (1, 8)}
    code, bits = codes[array.view().dtype.name]
    options = {"code": code, "bits": bits, "flags": READ_ONLY}
    return tensor_at(array.address, array.shape, where, strides=array.strides, **options)


class Case:
    """Operands of a call that passed every check, and how to run it with others."""

    def __init__(self, run, operands, outputs, other_types):
        self.run = run
        self.operands = operands
        self.outputs = outputs
        self.other_types = other_types
        for _ in range(3):  # checked, bound, submitted
            run(**operands)
        amdattn.synchronize()


def device(*shape, dtype="bfloat16"):
    return amdattn.asarray(np.ones(shape, as_dtype(dtype).numpy()))


def attention_plan():
    plan = amdattn.plan_attention(
        *(1, 16, 24, 2, 2, 128),
        device=amdattn.device_props(),
        num_splits=2,
        return_lse=True,
        sinks=True,
    )
    operands = {
        "q": device(*SHAPE),
        "k": device(1, 24, 2, 128),
        "v": device(1, 24, 2, 128),
        "sinks": device(2, dtype="float32"),
        "out": device(*SHAPE),
        "lse": device(1, 2, 16, dtype="float32"),
        "workspace": device(plan.workspace.total_bytes, dtype="uint8"),
    }
    types = dict.fromkeys(("q", "k", "v", "out"), "float16") | dict.fromkeys(
        ("sinks", "lse"), "int32"
    )
    return Case(plan.run, operands, ("out", "lse", "workspace"), types)


def varlen_plan():
    plan = amdattn.plan_attention(
        *(1, 16, 24, 2, 2, 128), device=amdattn.device_props(), total_q=16, total_kv=24
    )
    operands = {
        "q": device(16, 2, 128),
        "k": device(24, 2, 128),
        "v": device(24, 2, 128),
        "cu_seqlens_q": amdattn.asarray(np.array([0, 16], np.int32)),
        "cu_seqlens_k": amdattn.asarray(np.array([0, 24], np.int32)),
        "out": device(16, 2, 128),
    }
    types = dict.fromkeys(("q", "k", "v", "out"), "float16") | dict.fromkeys(
        ("cu_seqlens_q", "cu_seqlens_k"), "float32"
    )
    return Case(plan.run, operands, ("out",), types)


def gemm_plan():
    plan = planned(GemmProblem(3, 20, 256, bias=True, split_k=2), SMALL)
    operands = {
        "a": device(3, 256),
        "b": device(20, 256),
        "bias": device(20),
        "out": device(3, 20),
        "workspace": plan.new_workspace(),
    }
    types = dict.fromkeys(("a", "b", "bias", "out"), "float16")
    return Case(plan.run, operands, ("out", "workspace"), types)


CASES = {"attention": attention_plan, "varlen": varlen_plan, "gemm": gemm_plan}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_another_type_is_not_excused(make, launches):
    case = make()
    before = len(launches)
    for name, dtype in case.other_types.items():
        if name.startswith("cu_seqlens"):
            continue
        operand = seen_as(case.operands[name], dtype)
        with pytest.raises(ValueError, match=f"{name} has dtype {dtype}"):
            case.run(**{**case.operands, name: operand})
    assert len(launches) == before


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_memory_that_became_read_only_is_not_excused(make, launches):
    case = make()
    before = len(launches)
    for name in case.outputs:
        with pytest.raises(ValueError, match=f"{name} is read-only"):
            case.run(**{**case.operands, name: forbidden(case.operands[name])})
    assert len(launches) == before


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_other_strides_are_not_excused(make, launches):
    """The same addresses and shapes: rows that lie on each other, or apart."""
    case = make()
    before = len(launches)
    for name, array in case.operands.items():
        if name.startswith("cu_seqlens"):  # of any strides and integers: they are copied
            continue
        strides = (*array.strides[:-1], 2)
        changed = amdattn.DeviceArray(
            array.address, array.shape, strides, array.view().dtype, array._memory
        )
        with pytest.raises(ValueError, match=rf"{name} has .*strides"):
            case.run(**{**case.operands, name: changed})
    assert len(launches) == before


def test_calls_by_function_tell_types_apart():
    """The plan of one element type is not taken for the other."""
    rng = np.random.default_rng(1)
    x = [rng.standard_normal(SHAPE, np.float32) for _ in range(3)]
    arrays = [amdattn.asarray(one.astype(ml_dtypes.bfloat16)) for one in x]
    halves = [seen_as(one, "float16") for one in arrays]
    for _ in range(3):
        found = amdattn.flash_attn_func(*arrays)
        other = amdattn.flash_attn_func(*halves)
        assert found.dtype == ml_dtypes.bfloat16 and other.dtype == np.float16
        expected = amdattn.flash_attn_func(*(one.numpy() for one in halves))
        assert other.numpy().tobytes() == expected.tobytes()


def test_layouts_are_told_apart():
    """One set of arrays that both layouts can be read from."""
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal((1, 4, 4, 128)).astype(ml_dtypes.bfloat16) for _ in range(3)]
    on_device = [amdattn.asarray(x) for x in arrays]
    out = amdattn.empty((1, 4, 4, 128))
    for layout in ("bshd", "bhsd") * 3:
        amdattn.flash_attn_func(*on_device, layout=layout, causal=True, out=out)
        expected = amdattn.flash_attn_func(*arrays, layout=layout, causal=True)
        assert out.numpy().tobytes() == expected.tobytes()
