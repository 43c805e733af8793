"""Prints AITER's attention of short rows on MI355X: published times, and modelled, as Markdown.

    AMDATTN_DEVICE=virtual:gfx950 python -m benchmarks.performance_model.short_rows --aiter DIR

Published are the times of its repository, op_tests/cpp/mha/README.md, of 2026 (c241ba40) and of
October 2025 (a83421be), and one of HipKittens (f09e9685). Modelled is the whole launch, every
workgroup of an XCD, at the clock that is published for attention on this chip at its power cap by
its matrix use, and the launch; beside it what so many workgroups alone on their CUs would take, one
after the other. Nothing is fitted.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from amdattn.arch.architectures import architecture
from amdattn.bench.kernels import Functions
from amdattn.bench.operation import run_operation
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from benchmarks.peers.aiter import Aiter
from benchmarks.performance_model.kernels import HEAD_DIM, KV_ROWS, AiterForward, loop


@dataclass(frozen=True)
class Row:
    """Batch, heads of Q and of K, rows, published us."""

    batch: int
    heads_q: int
    heads_kv: int
    rows: int
    us: tuple[float, ...]


PUBLISHED = (
    Row(1, 32, 8, 2048, (60.8, 57.5)),
    Row(4, 32, 8, 1024, (67.9, 71.8)),
    Row(8, 32, 8, 1024, (137.4, 154.2)),
    Row(16, 16, 16, 1024, (166.0,)),
    Row(8, 64, 8, 1024, (295.4, 280.5)),
    Row(1, 64, 8, 4096, (451.6, 421.0)),
    Row(4, 64, 8, 2048, (481.6, 457.5)),
)


def clock_ghz(matrix_use: float) -> float:
    """Of ROCm/gfx950-gluon-tutorials, at the power cap; no more than the peak clock."""
    return min(2.714 - 1.242 * matrix_use, runtime.device_props().peak_clock_ghz)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--aiter", type=Path, required=True, help="a checkout of ROCm/aiter")
    aiter = parser.parse_args().aiter
    props = runtime.device_props()
    launch_us = architecture(props.arch).launch_us
    kernel, functions = Aiter(aiter, "rtne"), Functions()
    alone = loop(AiterForward(aiter, "rtne"), 1)
    head = ["shape", "published us", "clk", "outside the loop, per round", "GHz", "us"]
    head += ["alone: us"]
    print(f"| {' | '.join(head)} |\n|---|" + "--:|" * (len(head) - 1))
    for row in PUBLISHED:
        shape = Shape(row.batch, row.heads_q, row.heads_kv, row.rows, row.rows, HEAD_DIM)
        record = run_operation(kernel, shape, functions, method="full").record
        groups = row.batch * row.heads_q * -(-row.rows // AiterForward.q_rows)
        rounds = -(-groups // props.num_cus)
        in_loop = alone.clk * row.rows / KV_ROWS
        cells = [str(shape), " / ".join(f"{us:.1f}" for us in row.us), f"{record.cycles:.0f}"]
        cells.append(f"{(record.cycles or 0) / rounds - in_loop:.0f}")
        for clk in (record.cycles or 0, rounds * (alone.base + in_loop)):
            ghz = clock_ghz(record.use["mfma_device"] * (record.cycles or 0) / clk)
            us = clk / ghz / 1000 + launch_us
            errors = ", ".join(f"{us / published - 1:+.1%}" for published in row.us)
            cells += [f"{ghz:.2f}"] * (clk == record.cycles) + [f"{us:.1f} ({errors})"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
