"""Attention backward as whole operations, ours and AITER's: what is around the main launch, too.

    AMDATTN_DEVICE=virtual:gfx942 python -m benchmarks.attention_backward_whole [--aiter DIR]

Modelled, 128 columns, at the clock that matrix products leave. Row sums and conversions, ours and
those of a checkout of https://github.com/ROCm/aiter, are run in full at two lengths and are taken
to grow with the rows; main launches are composed (`attention_backward_loop`). What AITER has a
framework do counts at the rate of the memory: zeroes of dQ, which it sums in 16 bits (a16) or in 32
(a32), and sums over a group of what each head of q has of dK and dV. Launches are counted but for
the first one. Objects of gfx942 only: on gfx950 a16 has another kernel to convert.
"""

from __future__ import annotations

import argparse
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import amdattn
from amdattn import virtual
from amdattn.bench.kernels import Functions, Launch
from amdattn.device import runtime
from benchmarks import attention_backward_loop as lone
from benchmarks.attention_backward_launches import (
    AITER,
    Loop,
    Sizes,
    composed,
    composed_aiter,
    composed_causal,
    composed_pairs,
    split_rows,
)
from benchmarks.peers.aiter import rows_of_table
from benchmarks.peers.aiter_backward import BF16, LANES

HEADS, LENGTHS, COLUMNS = 64, (1024, 2048), 128
SHAPES: tuple[Sizes, ...] = tuple(
    (batch, heads, heads_kv, seqlen)
    for batch, heads, heads_kv, seqlen, columns in lone.SHAPES
    if columns == COLUMNS
)


@dataclass(frozen=True)
class Small:
    """A launch whose time grows with the rows of all heads of q."""

    clk: tuple[float, float]  # of HEADS times LENGTHS

    def of(self, rows: int) -> float:
        """Clk."""
        short, long = self.clk
        steps = rows / HEADS / (LENGTHS[1] - LENGTHS[0]) - LENGTHS[0] / (LENGTHS[1] - LENGTHS[0])
        return max(short + steps * (long - short), short * rows / HEADS / LENGTHS[0])


def _slots(*values: int) -> bytes:
    return b"".join(struct.pack("<Q8x", value) for value in values)


def of_aiter(directory: Path, table: str, seqlen: int, functions: Functions) -> int:
    """Clk of `odo`, which makes row sums, or of `dq_convert`."""
    folder = directory / "hsa" / amdattn.device_props().arch / "fmha_v3_bwd"
    wanted = {"dtype": "bf16", "hdim_q": str(COLUMNS), "mode": "0"}
    rows = rows_of_table(directory, folder / f"fmha_bwd_{table}.csv")
    row = next(row for row in rows if wanted.items() <= row.items())
    device, element = runtime.get(), COLUMNS * 2
    at = [device.malloc(HEADS * seqlen * COLUMNS * 4) for _ in range(3)]
    strides = (element, HEADS * element * seqlen, HEADS * element)  # head, batch, row
    if table == "odo":
        block = _slots(*at, *strides, *strides, seqlen * 4, HEADS * seqlen * 4, 4, seqlen, COLUMNS)
    else:
        sums = (seqlen * COLUMNS * 4, HEADS * seqlen * COLUMNS * 4, COLUMNS * 4)
        block = _slots(*at[:2], *sums, *strides, seqlen, COLUMNS)
    grid = (-(-seqlen // int(row["ts"])), HEADS, 1)
    image = (folder / row["co_name"]).read_bytes()
    with virtual.profile() as profile:
        Launch(image, row["knl_name"], grid, (LANES, 1, 1), block + _slots(0, 0)).enqueue(functions)
        runtime.synchronize()
    for address in at:
        device.free(address)
    return profile.launches[0].cycles


def of_ours(seqlen: int) -> tuple[int, int]:
    """Clk of row sums and of the conversion: of few keys, which neither depends on."""
    q, k = (np.zeros((1, rows, HEADS, COLUMNS), BF16) for rows in (seqlen, 16))
    lse = np.zeros((1, HEADS, seqlen), np.float32)
    with virtual.profile() as profile:
        amdattn.flash_attn_backward(q, q, k, k, q, lse, num_splits=1)
    by_name = {launch.kernel: launch.cycles for launch in profile.launches}
    rows, rounded = (
        next(clk for name, clk in by_name.items() if part in name) for part in ("_rows_", "_round_")
    )
    return rows, rounded


def small_launches(directory: Path) -> dict[str, Small]:
    """By name."""
    functions = Functions()
    ours = [of_ours(seqlen) for seqlen in LENGTHS]
    found = {"rows": Small((ours[0][0], ours[1][0])), "round": Small((ours[0][1], ours[1][1]))}
    for table in ("odo", "dq_convert"):
        short, long = (of_aiter(directory, table, seqlen, functions) for seqlen in LENGTHS)
        found[table] = Small((short, long))
    return found


def whole(
    sizes: Sizes, causal: bool, loops: Mapping[bool, Loop], small: Mapping[str, Small]
) -> list[float]:
    """Clk of ours, a16 and a32."""
    props = amdattn.device_props()
    batch, heads, heads_kv, seqlen = sizes
    rows, launch = batch * heads * seqlen, props.architecture.launch_us * 1e3
    launch *= props.sustained_clock_ghz
    of_byte = props.sustained_clock_ghz / props.hbm_bytes_per_ns
    splits = lone.planned_splits(*sizes, COLUMNS, "bf16", causal=causal)
    if causal:
        ours = composed_causal(loops[True], loops[False], sizes, props, splits)
    else:
        ours = composed(loops[False], sizes, props, splits)
    if splits.count > 1:
        summed = split_rows(loops[False], sizes, splits)
        ours += launch + lone.sum_clk(batch, heads_kv, summed, COLUMNS, "bf16", splits)
    found = [ours + small["rows"].of(rows) + small["round"].of(rows) + 2 * launch]
    for sums in (16, 32):
        if causal:
            peer = composed_pairs(AITER[sums, props.arch, COLUMNS, True], sizes, props)
        else:
            peer = composed_aiter(sizes, COLUMNS, props, sums)
        peer += small["odo"].of(rows) + launch + rows * COLUMNS * sums // 8 * of_byte + launch
        if sums == 32:
            peer += small["dq_convert"].of(rows) + launch
        if heads > heads_kv:
            of_keys = 2 * COLUMNS * 2 * (rows + rows * heads_kv // heads)
            peer += of_keys * of_byte + launch
        found.append(peer)
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, default=os.environ.get("AMDATTN_AITER_DIR"))
    arguments = parser.parse_args()
    if arguments.aiter is None or amdattn.device_props().arch != "gfx942":
        parser.error("--aiter must name a checkout of ROCm/aiter, the device must be of gfx942")
    small = small_launches(Path(arguments.aiter))
    print("| launch | kclk of 64 heads, 1024 rows | 2048 |\n|---|--:|--:|")
    for name, one in small.items():
        print(f"| {name} | {one.clk[0] / 1e3:.1f} | {one.clk[1] / 1e3:.1f} |", flush=True)
    loops = {
        causal: lone.measure(COLUMNS, COLUMNS, lone.CAUSAL if causal else {}, "bf16", 1.0)
        for causal in (False, True)
    }
    print(
        "\n| batch, heads, heads of k, rows | ours, Mclk | a16, a32 / ours | causal "
        "| a16, a32 / ours |\n|---|--:|--:|--:|--:|"
    )
    for sizes in SHAPES:
        cells = []
        for causal in (False, True):
            ours, *peers = whole(sizes, causal, loops, small)
            ratios = ", ".join(f"{peer / ours:.3f}" for peer in peers)
            cells.append(f"{ours / 1e6:.3f} | {ratios}")
        print(f"| {', '.join(map(str, sizes))} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
