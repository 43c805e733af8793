"""Main loops of attention forward, ours beside others', under every reading of the model.

    python -m benchmarks.attention_readings [--aiter DIR] [--moonmath DIR] [--json]

bfloat16, 128 columns, no mask, operands of normal random numbers; ours is the kernel that a plan
takes for b16 h64 s16384, where rounds of workgroups hardly matter. Clk for 384 rows of Q and 64
keys: what 1024 more keys take one workgroup alone on its CU. docs/generated/readings.md has the
readings. --json prints what `benchmarks.attention_bench --loops` and `attention_bench_gfx950` read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import amdattn
from amdattn.bench.record import model_version
from benchmarks.attention_loop import BLOCK, ROWS, lifetime
from benchmarks.performance_model.kernels import HEAD_DIM, AiterForward, MoonMath, loop
from benchmarks.readings import OfReading, each_reading, least_ratio

OURS, AITER, MOONMATH = "amdattn", "aiter", "moonmath"
KEYS = (1024, 2048)
# By rounding mode and whose it is, clk by reading.
Loops = Mapping[str, Mapping[str, Mapping[str, float]]]


def clk_of_ours(mode: str) -> float:
    """Under the reading that is set."""
    plan = amdattn.plan_attention(
        *(16, 16384, 16384, 64, 64, HEAD_DIM), device=amdattn.device_props(), round_mode=mode
    )
    kernel = plan.launches[0].kernel
    short, long = (lifetime(kernel, keys) for keys in KEYS)
    return (long - short) / (KEYS[1] - KEYS[0]) * BLOCK * ROWS / kernel.tile["q"]


def clk_of_peer(kernel: AiterForward | MoonMath) -> float:
    """The same of another's."""
    return loop(kernel, 1, KEYS).clk * ROWS / kernel.q_rows


def all_loops(modes: tuple[str, ...], aiter: Path | None, moonmath: Path | None) -> Loops:
    """Of ours, and of the peers that are there."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for mode in modes:
        measures = {OURS: partial(clk_of_ours, mode)}
        if aiter:
            measures[AITER] = partial(clk_of_peer, AiterForward(aiter, mode))
        if moonmath:
            measures[MOONMATH] = partial(clk_of_peer, MoonMath(moonmath, mode))
        found[mode] = {whose: each_reading(measure) for whose, measure in measures.items()}
    return found


def least(loops: Loops, peer: str, mode: str) -> OfReading | None:
    """How many times as long a peer's loop of a rounding mode takes at least."""
    of = loops.get(mode, {})
    return least_ratio(of[peer], of[OURS]) if peer in of else None


def markdown(loops: Loops) -> str:
    """A row for each reading, with ratios to ours in parentheses, and the least of them."""
    columns = [(mode, whose) for mode, of in loops.items() for whose in of]
    head = ["reading", *(f"{whose} {mode}" for mode, whose in columns)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * len(columns)]
    for name in next(iter(loops.values()))[OURS]:
        cells = []
        for mode, whose in columns:
            clk, ours = loops[mode][whose][name], loops[mode][OURS][name]
            cells.append(f"{clk:.0f}" + f" ({clk / ours:.3f})" * (whose != OURS))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    found = [least(loops, whose, mode) for mode, whose in columns]
    cells = [
        "" if whose == OURS else str(one) for one, (_, whose) in zip(found, columns, strict=True)
    ]
    return "\n".join([*lines, f"| least | {' | '.join(cells)} |"]) + "\n"


def read(file: Path) -> tuple[Loops, str]:
    """What --json printed, and the version of the model.

    Raises
    ------
    ValueError
        The file is no such document.
    """
    try:
        document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return document["loops"], document["model"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{file} was not written by `python -m benchmarks.attention_readings --json` "
            f"({type(error).__name__}: {error})"
        ) from None


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter")
    parser.add_argument("--moonmath", type=Path, help="MoonMath's code objects")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    # Where an instruction rounds to bfloat16, kernels have its rounding alone.
    converts = amdattn.device_props().architecture.converts_bf16
    modes = ("rtne",) if converts else ("rtne", "rtna", "rtz")
    loops = all_loops(modes, options.aiter, options.moonmath)
    if options.json:
        print(json.dumps({"model": model_version(), "loops": loops}, indent=1))
    else:
        print(markdown(loops), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
