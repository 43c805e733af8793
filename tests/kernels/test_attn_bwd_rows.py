"""The launches around the attention backward, each alone: sums of rows, rounding, sinks."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.bench.kernels import Functions, Launch
from amdattn.device.kernarg import packer
from amdattn.ops.attention_backward.kernels import ROUND, ROWS, SINKS
from tests.support.shipped import shipped

ELEMENTS: dict[str, Any] = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
FACTOR = np.float32(math.log2(math.e))
REST = np.float32(math.log2(math.e) - float(FACTOR))


def launch(op: str, dtype: str, grid: int, args: dict[str, Any]) -> None:
    kernel = next(row for row in shipped(op) if row.dtype == dtype)
    layout = packer(kernel)
    block = bytearray(layout.size)
    fields = sorted(kernel.kernarg.fields, key=lambda field: field[1])
    values = [
        x.address if isinstance(x := args[name], amdattn.DeviceArray) else x for name, *_ in fields
    ]
    layout.pack_into(block, 0, *values)
    image = kernel.read_code_object()
    Launch(image, kernel.symbol, (grid, 1, 1), (256, 1, 1), bytes(block)).enqueue(Functions())
    amdattn.synchronize()


def strides(name: str, *steps: int) -> dict[str, int]:
    return dict(zip((f"{name}_stride_{of}" for of in ("batch", "seq", "head")), steps, strict=True))


# Ties, numbers next to them, the ends of both types, denormals, infinities, NaNs of all kinds.
BITS = np.array(
    [
        *(0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x3F801000, 0x3F803000, 0x3F801001),
        *(0x7F7FFFFF, 0x7F7F8000, 0x7F7F7FFF, 0x477FF000, 0x477FEFFF, 0x33000000, 0x33000001),
        *(0x00000001, 0x00008000, 0x80018000, 0x007FFFFF, 0x387FC000, 0x38000000, 0xB8001000),
        *(0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0x7FFFFFFF, 0xFF8FFFFF),
    ],
    np.uint32,
)


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("columns", [8, 72, 128, 256])
def test_rounding(dtype: str, columns: int) -> None:
    """To nearest even, NaNs stay; rows with gaps, which stay, and of no sequence."""
    rng = np.random.default_rng(columns)
    batch, rows, heads = 2, 37, 3
    x = rng.standard_normal((batch, rows, heads, columns), np.float32)
    x *= 2.0 ** rng.integers(-40, 18, x.shape)
    x.reshape(-1)[: 7 * len(BITS) : 7] = BITS.view(np.float32)
    for sums in (None, np.array([0, 5, 30], np.int32)):
        out = np.full((batch, rows, 2 * heads, columns + 8), 77, ELEMENTS[dtype])
        on_device = amdattn.asarray(out)
        step = out.strides[0] // 2, out.strides[1] // 2, 2 * (columns + 8)
        args = {"from": amdattn.asarray(x), "to": on_device, "seqlen": rows, "num_heads": heads}
        args |= {"cu_seqlens_q": amdattn.asarray(sums) if sums is not None else 0}
        args |= {"columns": columns, "sequences": 2}
        args |= strides("from", *(n // 4 for n in x.strides[:3])) | strides("to", *step)
        at_once = 4 * (256 // (columns // 8))  # a lane has four rows
        batches = 1 if sums is not None else batch
        launch(ROUND, dtype, batches * -(-rows * heads // at_once), args)
        with np.errstate(all="ignore"):
            expected = x.astype(ELEMENTS[dtype])
        wanted = out.copy()
        which = (slice(0, batches), slice(0, 30 if sums is not None else rows))
        wanted[which[0], which[1], ::2, :columns] = expected[which]
        found = on_device.numpy()
        nan = np.isnan(wanted.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), nan)
        np.testing.assert_array_equal(found[~nan].view(np.uint16), wanted[~nan].view(np.uint16))


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("tile_rows", [16, 32])
@pytest.mark.parametrize("dims", [(8, 8), (64, 72), (256, 256), (40, 200)])
def test_sums_of_rows(dtype: str, tile_rows: int, dims: tuple[int, int]) -> None:
    """Delta, lse in base 2, what is beyond the rows, and zeroes of dq and of nothing else."""
    rng = np.random.default_rng(tile_rows)
    batch, rows, heads = 2, 35, 3
    head_dim, head_dim_v = dims
    tiles = -(-rows // tile_rows)
    o, dout = (
        rng.standard_normal((batch, rows, heads, head_dim_v), np.float32).astype(ELEMENTS[dtype])
        for _ in range(2)
    )
    lse = (50 * rng.standard_normal((batch, heads, rows))).astype(np.float32)
    dlse = rng.standard_normal((batch, heads, rows)).astype(np.float32)
    lse[0, 1, 3] = -np.inf
    lse[1, 2, 34], lse[1, 0, 0] = np.inf, np.nan
    dq = amdattn.asarray(np.full((batch, rows + 1, heads, head_dim + 8), 77, np.float32))
    sums = amdattn.asarray(np.full((batch, heads, tiles, 2, tile_rows), 77, np.float32))
    args = {"o": amdattn.asarray(o), "dout": amdattn.asarray(dout), "lse": amdattn.asarray(lse)}
    args |= {"dlse": amdattn.asarray(dlse), "rows": sums, "dq": dq, "cu_seqlens_q": 0}
    for name in ("o", "dout"):
        args |= strides(name, *(n // 2 for n in o.strides[:3]))
    row = heads * (head_dim + 8)
    args |= strides("dq", (rows + 1) * row, row, head_dim + 8)
    for name in ("lse", "dlse"):
        args |= {f"{name}_stride_batch": heads * rows, f"{name}_stride_head": rows}
    args |= {"seqlen_q": rows, "head_dim": head_dim, "head_dim_v": head_dim_v}
    args |= {"row_tiles": tiles, "tile_rows": tile_rows, "num_heads": heads}
    args |= {"order": 0, "batch": batch, "padding": 0}
    args |= {"log2_factor": FACTOR, "log2_rest": REST}
    launch(ROWS, dtype, batch * heads * -(-tiles * tile_rows // 32), args)

    found = sums.numpy().transpose(3, 0, 1, 2, 4).reshape(2, batch, heads, -1)
    assert (found[0, ..., rows:] == np.inf).all() and (found[1, ..., rows:] == 0).all()
    products = o.astype(np.float64) * dout.astype(np.float64)
    minus_delta = dlse - products.sum(3).swapaxes(1, 2)
    allowed = 2.0**-20 * (np.abs(products).sum(3).swapaxes(1, 2) + np.abs(dlse))
    none = lse == -np.inf
    assert (found[0, ..., :rows][none] == np.inf).all() and (found[1, ..., :rows][none] == 0).all()
    assert (np.abs(found[1, ..., :rows] - minus_delta) <= allowed)[~none].all()
    with np.errstate(invalid="ignore"):
        exact = lse.astype(np.float64) * (float(FACTOR) + float(REST))
    finite = np.isfinite(lse)
    wrong = np.abs(found[0, ..., :rows][finite] - exact[finite])
    assert (wrong <= 2.0**-23 * np.abs(exact[finite])).all()
    np.testing.assert_array_equal(found[0, ..., :rows][~finite & ~none], lse[~finite & ~none])
    wanted = np.full(dq.shape, 77, np.float32)
    wanted[:, :rows, :, :head_dim] = 0
    np.testing.assert_array_equal(dq.numpy(), wanted)


def test_gradients_of_sinks() -> None:
    rng = np.random.default_rng(1)
    batch, heads, tiles, tile_rows = 3, 5, 19, 32
    sums = rng.standard_normal((batch, heads, tiles, 2, tile_rows)).astype(np.float32)
    sums[:, :, -1, 0, 20:], sums[:, :, -1, 1, 20:] = np.inf, 0
    sinks = rng.standard_normal(heads).astype(np.float32)
    sinks[3] = -np.inf
    out = amdattn.asarray(np.full(heads, 77, np.float32))
    args = {"rows": amdattn.asarray(sums), "sinks": amdattn.asarray(sinks), "dsinks": out}
    args |= {"batch": batch, "num_heads": heads, "row_tiles": tiles, "tile_rows": tile_rows}
    args |= {"log2_factor": FACTOR, "log2_rest": REST}
    launch(SINKS, "float32", heads, args)
    log2, minus_delta = sums.astype(np.float64).transpose(3, 1, 0, 2, 4).reshape(2, heads, -1)
    terms = np.exp2(sinks.astype(np.float64)[:, None] * math.log2(math.e) - log2) * minus_delta
    np.testing.assert_allclose(
        out.numpy(), terms.sum(1), rtol=0, atol=2.0**-20 * np.abs(terms).sum(1).max()
    )
    assert out.numpy()[3] == 0
