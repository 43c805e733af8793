"""A launch of a code object: its arguments where the kernel reads them, and how it is timed."""

from __future__ import annotations

import dataclasses
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdattn import compiler, paths
from amdattn.bench import code_object as timed
from amdattn.bench.kernels import Functions, Operands
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from amdattn.checking.arguments import Buffer, Scalar
from amdattn.checking.subjects import CodeObject
from amdattn.device.kernarg import packer
from amdattn.dtypes import as_dtype
from amdattn.ops.attention import cases as attention, reference
from amdattn.testing import selftest
from benchmarks.checker_mutation.object_file import object_subject

MICRO = paths.hsaco_dir() / "micro"
FILE = MICRO / json.loads((MICRO / "gfx942.json").read_text())["file"]
INT32 = as_dtype("int32")


def scalar(value: int) -> Scalar:
    return Scalar(f"s{value}", "int32", value)


@pytest.fixture
def subject() -> CodeObject:
    """Two ints, two addresses, four ints; it fills the second buffer."""
    arguments = (
        *(scalar(0), scalar(2)),
        *(Buffer("x", "in", INT32, (64,), "zeros"), Buffer("y", "inout", INT32, (4096,), "zeros")),
        *(scalar(5), scalar(6), scalar(7), scalar(8)),
    )
    return CodeObject(FILE, "amdattn_micro_fill", (1, 1, 1), (64, 1, 1), arguments)


def test_arguments_are_at_the_kernels_offsets(subject: CodeObject) -> None:
    arrays = subject.arrays()
    expected = struct.pack("<iiQQiiii", 0, 2, arrays["x"].address, arrays["y"].address, 5, 6, 7, 8)
    assert subject.kernarg(arrays) == expected
    (case,) = object_subject(subject).cases
    assert case.kernarg == struct.pack("<iiQQiiii", 0, 2, 0, 0, 5, 6, 7, 8)
    assert tuple(case.pointers) == ((8, 0), (16, 1))
    assert [buffer.nbytes for buffer in case.buffers] == [256, 16384]
    assert subject.title == f"{FILE.name} amdattn_micro_fill grid (1, 1, 1) workgroup (64, 1, 1)"


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("limit", [0, 1])
def test_only_short_launches_settle_at_a_clock(
    subject: CodeObject, monkeypatch: pytest.MonkeyPatch, short: bool, limit: int
) -> None:
    given: list[Any] = []
    told: list[tuple[str, int, int]] = []
    monkeypatch.setattr(timed.Record, "short", property(lambda _: short))

    def settled(record: Any, totals: Any) -> Any:
        assert totals(1500).cycles > 0
        given.append(record)
        return record

    monkeypatch.setattr(timed, "settled", settled)
    subject.grid = (16, 1, 1)
    outcome = timed.run_code_object(
        subject,
        Functions(),
        operation="fill",
        flops=10**6,
        simulated_workgroups=limit,
        advance=lambda *what: told.append(what),
    )
    assert len(given) == short
    assert told == [(subject.title, 0, 1), (subject.title, 1, 1)]
    record = outcome.record
    assert record.peer == f"object={FILE.name}" and record.operation == "fill"
    assert record.shape == "grid (16, 1, 1) workgroup (64, 1, 1)"
    # Two workgroups on each of 8 XCDs: of a part no rate of the whole can be stated.
    part = {"first_workgroups": 1, "of_workgroups": 2} if limit else {}
    assert (record.sampled, record.flops) == (part, 0 if limit else 10**6)


def test_code_objects_are_of_version_5(tmp_path: Path) -> None:
    source = tmp_path / "k.hip"
    source.write_text("__attribute__((global)) void k(int* p) { *p = 1; }\n")
    found = compiler.build(source).code_object
    assert found[:4] == b"\x7fELF"
    assert found[8] == 3  # EI_ABIVERSION: ELFABIVERSION_AMDGPU_HSA_V5
    assert struct.unpack_from("<I", found, 48)[0] & 0xFF == 0x4C  # EF_AMDGPU_MACH of gfx942


def test_a_kernel_of_one_argument(tmp_path: Path) -> None:
    source = tmp_path / "k.hip"
    source.write_text("__attribute__((global)) void k(int* p) { *p = 1; }\n")
    (tmp_path / "k.hsaco").write_bytes(compiler.build(source).code_object)
    given = (Buffer("p", "inout", INT32, (4,), "zeros"),)
    one = CodeObject(tmp_path / "k.hsaco", None, (1, 1, 1), (64, 1, 1), given)
    arrays = one.arrays()
    assert one.kernarg(arrays) == struct.pack("<Q", arrays["p"].address)
    (case,) = object_subject(one).cases
    assert case.kernarg == bytes(8)


def test_benchmarks_ask_for_no_lse() -> None:
    shape = Shape(1, 2, 1, 40, 70, 64)
    kernel = Shipped("rtne", 2)
    with Operands(shape) as operands:
        launches = kernel.launches(shape, operands)
        for planned, launch in zip(kernel._plan(shape).launches, launches, strict=True):
            values = packer(planned.kernel).unpack(launch.kernarg)
            assert values["lse"] == 0 and values["q"] == operands.addresses["q"]
            assert values["q_stride_seq"] == 128 and values["k_stride_seq"] == 64


# -- inputs and masks of the self-test -------------------------------------------------------------


CASES = list(attention.cases(None))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_inputs_of_a_case(case: attention.AttentionCase) -> None:
    problem, layout = case.problem, case.layout
    inputs = case.inputs(3)
    q, k, v = (inputs[name] for name in "qkv")
    for name, x in zip("qkv", (q, k, v), strict=True):
        assert x.shape == problem.shape(name, layout) and x.dtype == problem.dtype
    other = case.inputs(4)
    assert not any((inputs[name] == other[name]).all() for name in "qkv")
    for name, again in case.inputs(3).items():
        np.testing.assert_array_equal(inputs[name].astype(float), again.astype(float))
    if case.packed:
        assert q.base is k.base is v.base is not None
        step = k.__array_interface__["data"][0] - q.__array_interface__["data"][0]
        assert v.__array_interface__["data"][0] - q.__array_interface__["data"][0] == 2 * step
        assert step == 2 * problem.num_heads_q * problem.head_dim
    values = q.astype(np.float32).reshape(-1, problem.head_dim)
    odd = {3: "nan", 5: "-inf", 11: "inf"} if case.special else {}
    for i, row in enumerate(values):
        assert np.isfinite(row).all() if i not in odd else {str(x) for x in row} == {odd[i]}
    if case.special:
        assert (k.astype(np.float32) >= 0).all()


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.packed or c.special], ids=lambda case: case.title
)
def test_cases_hold(case: attention.AttentionCase) -> None:
    result = selftest.run_case(attention.OPERATION, case)
    assert result.ok and result.reason == "" and result.case is case and 0 < result.seconds < 60
    for name, found in result.results.items():
        wrong = result.results | {name: dataclasses.replace(found, ok=False, reason="wrong")}
        changed = dataclasses.replace(result, results=wrong)
        assert not changed.ok and changed.reason == "wrong"


def test_what_each_row_sees() -> None:
    """By the definition, for every small window, 0 and none among them."""
    for first in (-2, 0, 3):
        for window in [(left, right) for left in range(-1, 4) for right in range(-1, 4)]:
            seen = reference.seen(first, 5, 6, window)
            for row in range(5):
                for key in range(6):
                    diagonal = first + row
                    low = -1 if window[0] < 0 else diagonal - window[0]
                    high = 6 if window[1] < 0 else diagonal + window[1]
                    assert seen[row, key] == (low <= key <= high), (first, window, row, key)


def test_sampled_merges_keep_no_events() -> None:
    from amdattn.bench.family import FamilySampler

    shape = Shape(1, 8, 8, 384, 1000, 64)
    sampler = FamilySampler(Shipped("rtz", 2), shape, Functions(), method="sampled", trace_events=9)
    first, merge = sampler.model()
    assert (len(first.profile.events), len(merge.profile.events)) == (9, 0)
