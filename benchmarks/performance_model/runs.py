"""Simulations by which the page judges the performance model; prints the headline as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")

from amdattn.arch.readings import DEFAULT
from amdattn.bench.run import reading
from benchmarks.performance_model import micro_kernel
from benchmarks.performance_model.kernels import (
    AITER_Q_ROWS,
    KV_ROWS,
    ROUND_MODES,
    SIMDS,
    AiterForward,
    Loop,
    MoonMath,
    loop,
    mean_clk,
)
from benchmarks.performance_model.published import COUNTERS

Loops = dict[tuple[str, str], Loop]
# Causal workgroups to simulate, 38 fill the XCD. Each takes a tile of Q from either end: all are
# alike.
CURVE_WORKGROUPS = {1024: 38, 2048: 38, 4096: 38, 8192: 8, 16384: 2}
WAVES = 8  # of a workgroup
# A causal tile of Q walks over half of the rows of K and V, and over half of those it masks.
CAUSAL_ITERATIONS = AITER_Q_ROWS / KV_ROWS / 2
# Of LDS instructions: destination or data registers, and which operand order.
LDS_FORMS = {
    "ds_read_b32": "ds_read_b32 v20, v4",
    "ds_read_b64": "ds_read_b64 v[20:21], v4",
    "ds_read_b96": "ds_read_b96 v[20:22], v4",
    "ds_read_b128": "ds_read_b128 v[20:23], v4",
    "ds_write_b32": "ds_write_b32 v4, v8",
    "ds_write_b64": "ds_write_b64 v4, v[8:9]",
    "ds_write_b96": "ds_write_b96 v4, v[8:10]",
    "ds_write_b128": "ds_write_b128 v4, v[8:11]",
}


def lds_bytes(name: str) -> int:
    """Of a lane."""
    return int(name.rpartition("b")[2]) // 8


def all_loops(aiter: Path, moonmath: Path | None, name: str = DEFAULT) -> Loops:
    """Both projects' loops in all rounding modes, under one reading."""
    loops: Loops = {}
    with reading(name):
        for mode in ROUND_MODES:
            loops["aiter", mode] = loop(AiterForward(aiter, mode))
            if moonmath:
                loops["moonmath", mode] = loop(MoonMath(moonmath, mode))
    return loops


def resident_use(aiter: Path, *, warm_code: bool) -> dict[int, float]:
    """MFMA use while a workgroup is resident, causal RTNA, by sequence length."""
    kernel = AiterForward(aiter, "rtna")
    found = {}
    for seqlen in COUNTERS:
        workgroups = CURVE_WORKGROUPS[seqlen]
        profile, _ = kernel.profile(workgroups, seqlen, causal=True, warm_code=warm_code)
        found[seqlen] = profile.clk["mfma"] / (profile.clk["wave"] / WAVES * SIMDS)
    return found


def start_up(use: dict[int, float], cost: Loop) -> float:
    """Clk of a tile beside its loop, by the shortest sequence of a curve of `resident_use`."""
    seqlen = min(use)
    iterations = seqlen / KV_ROWS / 2 + CAUSAL_ITERATIONS
    return (cost.mfma / use[seqlen] - cost.clk) * iterations


def extrapolation(
    kernel: AiterForward | MoonMath, cost: Loop, seqlen_kv: int = 6144, workgroups: int = 4
) -> tuple[float, float]:
    """Clk of a workgroup: by base and loop of shorter lengths, and simulated in full."""
    full = mean_clk(kernel.profile(workgroups, seqlen_kv)[0])
    return cost.base + cost.clk * seqlen_kv / KV_ROWS, full


def lds_clk(name: str, address: Callable[[int], int], lanes: int = 2**64 - 1) -> tuple[int, int]:
    """Port clk of one LDS instruction for data and addresses, and of them by conflicts."""
    body = f"  s_mov_b64 exec, s[20:21]\n  {LDS_FORMS[name]}\n  s_waitcnt lgkmcnt(0)"
    table = [address(lane) for lane in range(64)]
    profile = micro_kernel.profile(body, table=table, mask=lanes)
    return (
        int(profile.clk["lds"] + profile.clk["lds_address"]),
        int(profile.clk["lds_conflict"]),
    )


def served_together(name: str) -> tuple[tuple[int, ...], ...]:
    """Groups of lanes of which any two conflict when they read or write one bank."""
    groups: list[list[int]] = []
    for lane in range(64):
        for group in groups:
            pair = 1 << lane | 1 << group[0]
            if lds_clk(name, lambda i: 512 * i % 32768 + 128 * (i // 32), pair)[1]:
                group.append(lane)
                break
        else:
            groups.append([lane])
    return tuple(tuple(group) for group in groups)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, required=True)
    parser.add_argument("--moonmath", type=Path)
    args = parser.parse_args()
    loops = all_loops(args.aiter, args.moonmath)
    rows = [[*key, dataclasses.asdict(value)] for key, value in loops.items()]
    print(json.dumps(rows))


def read_loops(text: str) -> Loops:
    """What `main` printed."""
    return {(kernel, mode): Loop(**fields) for kernel, mode, fields in json.loads(text)}


if __name__ == "__main__":
    main()
