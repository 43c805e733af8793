"""The quantisation to 8 bits kernel by kernel: its bits, and what may not be written."""

from __future__ import annotations

import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.ops import registry
from amdattn.ops.quantize.cases import QuantizeCase
from amdattn.ops.quantize.planning import MAXIMA, QUANTIZE_FP8
from amdattn.ops.quantize.problem import QuantizeProblem
from amdattn.ops.quantize.quantize_fp8 import QuantizePlan
from tests.support import shipped
from tests.support.fake_rocm import run
from tests.support.kernel_sweep import run_on
from tests.support.quantized import NARROW, assert_same_bits, quantized

OPERATION = registry.operation("quantize_fp8")
KERNELS = {row.name: row for row in shipped.shipped(QUANTIZE_FP8)}
POISON = 0xA5  # of every byte
OTHERS = [arch for arch in ("gfx942", "gfx950") if arch != shipped.props().arch]


def check(case: QuantizeCase, apart: int = 3) -> None:
    """Results in the midst of poison, which must stay: so many rows and columns around them."""
    plan = OPERATION.plan_case(case, amdattn.device_props(), manifest.kernels())
    assert isinstance(plan, QuantizePlan)
    inputs, p = case.inputs(5), case.problem
    x = np.full((p.rows, p.columns + apart), np.nan, inputs["x"].dtype)
    x[:, : p.columns] = inputs["x"]
    wide = amdattn.asarray(x)[:, : p.columns]
    scale = amdattn.asarray(inputs["scale"]) if p.scale else None
    element = case.narrow.numpy()
    poison = np.full((p.rows + 2, p.columns + 2 * apart), POISON, np.uint8)
    held = amdattn.asarray(poison.view(element))
    where = slice(1, -1), slice(apart, -apart)
    of_scales = amdattn.asarray(np.full(p.scales + 2, POISON * 0x01010101, np.uint32).view("f4"))
    out_scale = None if p.scale else of_scales[1:-1]
    if out_scale is not None and p.per == "row":
        poisoned = np.full((p.scales + 2, 1), POISON * 0x01010101, np.uint32).view("f4")
        of_scales = amdattn.asarray(poisoned)
        out_scale = of_scales[1:-1]
    plan.run(wide, scale, out=held[where], out_scale=out_scale)
    y, made = quantized(inputs["x"], p.to, p.per, inputs.get("scale"))
    bytes_of_y = held.numpy().view(np.uint8)
    assert_same_bits(bytes_of_y[where].copy().view(element), y)
    bytes_of_y[where] = POISON
    assert (bytes_of_y == POISON).all(), "written outside"
    scales = of_scales.numpy()
    if not p.scale:
        assert_same_bits(scales[1:-1], made)
        scales[1:-1] = scales[:1]
    assert (scales.view(np.uint8) == POISON).all(), "a scale is written outside"


@pytest.mark.parametrize("name", KERNELS)
def test_bits(name: str) -> None:
    for case in OPERATION.cases(KERNELS[name]):
        assert isinstance(case, QuantizeCase)
        check(case)


@pytest.mark.parametrize("name", KERNELS)
def test_checked(name: str) -> None:
    """No finding in checked mode, of whole rows and of others."""
    with amdattn.virtual.check():
        for case in list(OPERATION.cases(KERNELS[name]))[1::5]:
            assert isinstance(case, QuantizeCase)
            check(case)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 63, 64, 65, 255, 257, 511, 513, 1023, 1025, 4097])
def test_rows_around_chunks_and_tiles(columns: int, rows: int) -> None:
    """As plans choose kernels; every pair of types and every way in turn."""
    i = rows + columns
    dtype = ("bfloat16", "float16", "float32")[i % 3]
    for per, scale in (("row", False), ("tensor", False), ("row", True), ("tensor", True)):
        problem = QuantizeProblem(rows, columns, dtype, NARROW[i % 2], per, scale)
        check(QuantizeCase(problem), apart=1 + i % 7)


def test_the_same_bits_in_any_order() -> None:
    """Maxima of parts are numbers of workgroups that come in any order."""
    x = np.random.default_rng(1).standard_normal((200, 3000), np.float32)
    found = []
    for seed in (0, 1, 7):
        try:
            amdattn.virtual.set_option("seed", seed)
            y, scale = amdattn.quantize_fp8(x, per="tensor")
        finally:
            amdattn.virtual.set_option("seed", 0)
        found.append((y.tobytes(), scale.tobytes()))
    assert len(set(found)) == 1


@pytest.mark.parametrize("cases", [3, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("arch", OTHERS)
def test_every_kernel_of_the_other_architecture(arch: str, cases: int) -> None:
    names = f"--names={QUANTIZE_FP8[:8]}_*"
    found = run_on(arch, f"--cases={cases}", "--checked", names, timeout=600)
    assert found["wrong"] == []
    own = {row.name for row in manifest.kernels() if row.arch == arch and row.op == QUANTIZE_FP8}
    assert own <= set(found["launched"])
    assert {row.name for row in manifest.kernels() if row.op == MAXIMA} & set(found["launched"])


def test_numbers_of_all_kinds_on_the_other_architecture() -> None:
    for arch in OTHERS:
        script = "from tests.support import quantized as q; print(q.check_numbers_of_all_kinds())"
        status, lines, errors = run(script, AMDATTN_DEVICE=f"virtual:{arch}")
        assert (status, lines) == (0, ["81"]), errors
