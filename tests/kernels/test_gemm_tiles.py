"""The kernels for many rows: tiles that exist in part, every end of a tile, order of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from amdattn.ops.gemm import grids
from tests.support.gemm_family import ENDS_OF_A_TILE, KERNELS, OF_8_BITS, Call, operands, some

TILES = {row.name: row for row in (*KERNELS, *OF_8_BITS) if grids.has_windows(row)}
# Those of 8 bits differ in the matrix instruction only.
_DEFAULT = ("_e4m3_t", "_e5m2_e4m3_t128x128", "_e4m3_e5m2_t256x128")
_NAMES_8_BIT = [
    pytest.param(row.name, marks=() if any(w in row.name for w in _DEFAULT) else pytest.mark.slow)
    for row in OF_8_BITS
]
NAMES = some(row.name for row in KERNELS if row.name in TILES) + _NAMES_8_BIT


def call_of(m: int, n: int, k: int, name: str, *options: Any, **more: Any) -> Call:
    """Of these sizes, or the next ones that the kernel takes; k is odd where it may be."""
    accepts = TILES[name].accepts
    m, n, k = (x + -x % accepts[f"{axis}_multiple"] for axis, x in (("m", m), ("n", n), ("k", k)))
    return Call(m, n, k + (k > 8 and accepts["k_multiple"] == 1), name, *options, **more)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_around_tiles(name: str) -> None:
    """One tile, one more row or column, and steps of k that are cut anywhere."""
    m, n = (TILES[name].tile[axis] for axis in "mn")
    for further_m, further_n, k in ((0, 0, 64), (1, 8, 72), (-1, 9, 200), (5, -3, 128), (1, 1, 8)):
        call_of(m + further_m, n + further_n, k, name).check()


@pytest.mark.parametrize("options", ENDS_OF_A_TILE, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_end_of_a_tile(name: str, options: dict[str, Any]) -> None:
    """Sixteen-byte stores and, where columns do not allow them, one by one."""
    m, n = (TILES[name].tile[axis] for axis in "mn")
    for columns in (n // 2 + 16, n // 2 + 13):
        call_of(m // 2 + 7, columns, 136, name, options).check()


@pytest.mark.parametrize("kinds", [("row", "row"), ("tensor", "row"), (None, "tensor")], ids=str)
@pytest.mark.parametrize("name", _NAMES_8_BIT)
def test_scales(name: str, kinds: tuple[str | None, str | None]) -> None:
    """Of all or of each row, beside alpha and bias, by every end of a tile."""
    m, n = (TILES[name].tile[axis] for axis in "mn")
    scales = dict(zip(("scale_a", "scale_b"), kinds, strict=True))
    for out_dtype in ("bfloat16", "float16", "float32"):
        options = {**scales, "out_dtype": out_dtype, "alpha": 0.7}
        Call(m + 5, n + 16, 144, name, options).check()
    for activation in ("silu", "silu_and_mul"):
        Call(m // 2 + 3, n // 2 + 13, 64, name, {**scales, "activation": activation}).check()


@pytest.mark.parametrize("name", NAMES)
def test_every_tile_is_made_once(name: str) -> None:
    """Of grids that fill no window and no round of the XCDs."""
    m, n = (TILES[name].tile[axis] for axis in "mn")
    for tiles_m, tiles_n in ((1, 9), (grids.WINDOW + 1, 1), (grids.WINDOW + 3, 3)):
        call_of(tiles_m * m - 1, tiles_n * n - 8, 8, name, with_bias=False).check()


@pytest.mark.parametrize("name", NAMES)
def test_parts_along_k(name: str) -> None:
    """Sums of parts are added in their order: the same bits whoever is the last."""
    m, n = (TILES[name].tile[axis] for axis in "mn")
    options = {"split_k": 3, "out_dtype": "float32"}
    call = call_of(m + 3, n + 13, 520, name, options)
    first = call.run()
    call.hold(first, *call.inputs())
    call.hold_bits_and_checks(first)
    gated = {"split_k": 2, "activation": "silu_and_mul"}
    call_of(m // 2 + 3, n // 2 + 16, 264, name, gated).check()


def test_every_tile_of_several_rounds_is_made_once() -> None:
    """Of a grid with more tiles than the chip holds at a time, and a round that is not full."""
    name, props = "gemm_nt_bf16_t128x128", amdattn.device_props()
    held = props.num_xcds * grids.chunk(TILES[name], props)
    tiles_m = 25
    tiles_n = held // tiles_m + 2
    assert 0 < (tiles_m * tiles_n) % held < held
    call_of(tiles_m * 128 - 1, tiles_n * 128 - 8, 8, name, with_bias=False).check()


@pytest.mark.parametrize("name", NAMES)
def test_equal_bits_and_no_findings(name: str) -> None:
    """Whatever the order of waves and workgroups; outputs are NaN before."""
    m, n = (TILES[name].tile[axis] for axis in "mn")
    call = call_of(m + 3, n + 24, 264, name)
    first = call.run()
    call.hold_bits_and_checks(first)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_the_others(name: str) -> None:
    """Equal bits alone, in another tile, and beside NaN."""
    m, n = (TILES[name].tile[axis] for axis in "mn")
    call = call_of(m + 9, n + 5, 200, name)
    a, b, bias = call.inputs()
    whole = call.run()
    alone = call_of(9, n + 5, 200, name).run(a[m:], b, bias)
    assert alone.tobytes() == whole[m:].tobytes()
    a[:m] = np.nan
    assert call.run(a, b, bias)[m:].tobytes() == whole[m:].tobytes()


def test_rows_far_apart() -> None:
    """Distances of which 256 take more than 2^32 bytes: every wave has an origin of its own."""
    name, apart, rows = "gemm_nt_bf16_t256x128", 2**23 + 2, 130
    far = amdattn.empty((rows, apart), "bfloat16")
    a, b, _ = operands(rows, 5, 64)
    for row in range(rows):
        start = far.address + row * apart * a.itemsize
        runtime.get().upload(start, a[row].ctypes.data, a[row].nbytes)
    call = Call(rows, 5, 64, name, with_bias=False)
    call.hold(call.run(far[:, :64], amdattn.asarray(b)), a, b)


@pytest.mark.parametrize("chip", ["MI300X", "MI355X"])
def test_plans_of_prompts_take_them(chip: str) -> None:
    """From some hundreds of rows on; tokens of decoding keep their kernels."""
    for m, n, k in ((2048, 4096, 4096), (4096, 28672, 8192), (8192, 8192, 8192)):
        plan = amdattn.plan_gemm(m, n, k, device=chip)
        assert grids.has_windows(plan.kernel) and plan.splits == 1
    for m in (1, 16, 64):
        plan = amdattn.plan_gemm(m, 4096, 4096, device=chip)
        assert not grids.has_windows(plan.kernel)
