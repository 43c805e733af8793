"""Attention forward, one workgroup alone on its CU, ours beside others', under every reading.

    python -m benchmarks.attention_readings [--inputs NAME|FILE.npz ...] [--keys KEYS [KEYS]]
        [--mode MODE ...] [--aiter DIR] [--moonmath DIR] [--json]

bfloat16, 128 columns, no mask; ours is the kernel that a plan takes for b16 h64 s16384, where
rounds of workgroups hardly matter. Clk for 384 rows of Q and 64 keys: of a whole workgroup with
4096 keys, or --keys, start and end included; of two lengths of the main loop, what the second takes
beyond the first. Of ours by inputs (`amdattn.bench.inputs`), by default model-like and normal:
where heads differ the mean of heads and the slowest one. AITER's and MoonMath's are of N(0, 1), and
AITER's time depends on no input. Ratios are to each of ours in their order. Times of a whole
workgroup are estimated besides, in us for the same rows and keys of a CU: at the clock at which the
product's power is its cap (`amdattn.energy`) if every CU has such a workgroup at once and what is
not in its caches costs no energy; and on an MI355X at the clock by matrix use
(`amdattn.arch.power_cap`).
docs/generated/readings.md has the readings. --json prints what `benchmarks.attention_bench --loops`
and `attention_bench_gfx950` read.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import amdattn
from amdattn import energy
from amdattn.arch.energies import ENERGIES, Energies
from amdattn.arch.power_cap import clock_by_matrix_use
from amdattn.arch.products import REFERENCE
from amdattn.arch.readings import DEFAULT
from amdattn.bench.inputs import MODEL_LIKE, NORMAL, FileInputs, Inputs, ScoreClass, named
from amdattn.bench.record import model_version
from amdattn.device.profiling import LaunchProfile
from amdattn.ops.attention.problem import ROUND_MODES
from benchmarks.attention_loop import BLOCK, ROWS, profiled
from benchmarks.performance_model.kernels import HEAD_DIM, AiterForward, MoonMath
from benchmarks.readings import LDS, OfReading, each_reading, least_ratio

OURS, AITER, MOONMATH = "amdattn", "aiter", "moonmath"
KEYS = (4096,)
INPUTS = (MODEL_LIKE, NORMAL)
CLK, BY_USE = "clk", "us, clock by matrix use"
# By rounding mode and whose it is, by reading.
Loops = Mapping[str, Mapping[str, Mapping[str, float]]]
_FEW = 100  # of which a table has digits
Figures = dict[str, float]  # clk, and us by estimate


def heads_of(inputs: Inputs) -> int:
    """How many heads of inputs differ, of which each is a workgroup."""
    if isinstance(inputs, ScoreClass):
        return len(inputs.heads)
    assert isinstance(inputs, FileInputs)
    return int(inputs.arrays["k"].shape[2])


def span(keys: Sequence[int]) -> int:
    """How many keys a figure is of."""
    return keys[-1] - sum(keys[:-1])


def clk_of(launch: LaunchProfile) -> float:
    """What its workgroups take, on average."""
    return sum(t.end - t.start for t in launch.times) / len(launch.times)


def energies_of(product: str) -> dict[str, Energies]:
    """By what times are called that are estimated with them."""
    if product != REFERENCE.name:
        return {"us, energies": ENERGIES[product]}
    # Two of these are fitted to published times; otherwise all matrix instructions are alike.
    nothing_fitted = energy.mi300x(large_tile=1, plain_valu=1)
    return {"us, energies fitted": ENERGIES[product], "us, nothing fitted": nothing_fitted}


def figures(launches: Sequence[LaunchProfile], rows: int, keys: Sequence[int]) -> Figures:
    """For 384 rows and 64 keys, of launches of a workgroup of so many rows, by number of keys."""
    units = span(keys) / BLOCK * rows / ROWS
    clk = [clk_of(launch) for launch in launches]
    found = {CLK: (clk[-1] - sum(clk[:-1])) / units}
    if len(launches) > 1:
        return found
    (launch,) = launches
    props = amdattn.device_props()
    everywhere = props.num_cus / launch.simulated_workgroups
    bytes_by_level = {**launch.bytes, "hbm": 0, "hbm_write": 0}
    activity = energy.Activity.counted(
        clk[0], energy.matrix_flops(launch), launch.clk, bytes_by_level, everywhere
    )
    if launch.reading == LDS["published"]:  # a port's clk carries twice as many bytes
        activity = replace(activity, lds_bytes=2 * activity.lds_bytes)
    for name, energies in energies_of(props.label).items():
        found[name] = energy.estimate(activity, energies).seconds * 1e6 / units
    use = sum(activity.matrix_flops.values()) / (
        clk[0] * props.num_cus * props.architecture.matrix_flops_per_clk
    )
    if ghz := clock_by_matrix_use(props.label, use):
        found[BY_USE] = found[CLK] / ghz / 1e3
    return found


def of_ours(
    mode: str, inputs: Sequence[Inputs] = INPUTS, keys: Sequence[int] = KEYS
) -> dict[str, Figures]:
    """Under the reading that is set, by what the columns of a table are called."""
    plan = amdattn.plan_attention(
        *(16, 16384, 16384, 64, 64, HEAD_DIM), device=amdattn.device_props(), round_mode=mode
    )
    kernel = plan.launches[0].kernel
    found: dict[str, Figures] = {}
    for one in inputs:
        heads = [
            figures([profiled(kernel, n, None, one, head) for n in keys], kernel.tile["q"], keys)
            for head in range(heads_of(one))
        ]
        name = f"{OURS}, {one.name}"
        if len(heads) > 1:
            mean = {what: sum(of[what] for of in heads) / len(heads) for what in heads[0]}
            found[f"{name}, mean of {len(heads)} heads"] = mean
            name += ", slowest head"
        found[name] = max(heads, key=lambda of: of[CLK])
    return found


def of_peer(kernel: AiterForward | MoonMath, keys: Sequence[int] = KEYS) -> Figures:
    """The same of another's."""
    return figures([kernel.profile(1, count)[0] for count in keys], kernel.q_rows, keys)


def all_figures(
    modes: Sequence[str],
    aiter: Path | None,
    moonmath: Path | None,
    inputs: Sequence[Inputs] = INPUTS,
    keys: Sequence[int] = KEYS,
) -> Mapping[str, Loops]:
    """Of ours, and of the peers that are there, by what is counted: clk first."""
    found: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for mode in modes:
        peers: dict[str, AiterForward | MoonMath] = {}
        if aiter:
            peers[AITER] = AiterForward(aiter, mode)
        if moonmath:
            peers[MOONMATH] = MoonMath(moonmath, mode)

        def measure(mode: str = mode, peers: Any = peers) -> dict[str, Figures]:
            theirs = {whose: of_peer(kernel, keys) for whose, kernel in peers.items()}
            return of_ours(mode, inputs, keys) | theirs

        for reading, columns in each_reading(measure).items():
            for column, of in columns.items():
                for what, value in of.items():
                    by_mode = found.setdefault(what, {}).setdefault(mode, {})
                    by_mode.setdefault(column, {})[reading] = value
    return found


def is_ours(column: str) -> bool:
    """Whether a column is of a kernel of this package."""
    return column.startswith(OURS)


def least(loops: Loops, peer: str, mode: str, column: str | None = None) -> OfReading | None:
    """How many times as long a peer takes at least, beside a column of ours: else the first."""
    of = loops.get(mode, {})
    if peer not in of:
        return None
    return least_ratio(of[peer], of[column or next(filter(is_ours, of))])


def summary(found: Mapping[str, Loops]) -> str:
    """A row for each peer, mode and inputs of ours: ratios by default, and the least of them."""
    head = ["a peer / ours", *(text for what in found for text in (what, "least"))]
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * (len(head) - 1)]
    for mode, of in next(iter(found.values())).items():
        ours = list(filter(is_ours, of))
        for peer, column in itertools.product([c for c in of if c not in ours], ours):
            cells = [f"{peer} {mode}{column.removeprefix(OURS)}"]
            for loops in found.values():
                theirs, least_of = loops[mode], least(loops, peer, mode, column)
                assert least_of
                cells.append(f"{theirs[peer][DEFAULT] / theirs[column][DEFAULT]:.3f}")
                cells.append(f"{least_of.ratio:.3f} ({least_of.reading})")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def markdown(loops: Loops) -> str:
    """A row for each reading, with ratios to ours in parentheses, and the least of them."""
    columns = [(mode, whose) for mode, of in loops.items() for whose in of]
    head = ["reading", *(f"{whose}, {mode}" for mode, whose in columns)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "--:|" * len(columns)]
    for name in next(iter(next(iter(loops.values())).values())):
        cells = []
        for mode, whose in columns:
            of = loops[mode]
            clk = of[whose][name]
            ratios = [f"{clk / of[column][name]:.3f}" for column in filter(is_ours, of)]
            digits = 0 if clk > _FEW else 3
            cells.append(f"{clk:.{digits}f}" + f" ({', '.join(ratios)})" * (not is_ours(whose)))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = []
    for mode, whose in columns:
        ours = [] if is_ours(whose) else list(filter(is_ours, loops[mode]))
        cells.append("; ".join(str(least(loops, whose, mode, column)) for column in ours))
    return "\n".join([*lines, f"| least | {' | '.join(cells)} |"]) + "\n"


def of_document(document: Mapping[str, Any]) -> Mapping[str, Loops]:
    """See `read`."""
    return {**document["estimates"], CLK: document["loops"]}


def read(file: Path) -> Mapping[str, Loops]:
    """What --json printed, by what is counted: estimated times, then clk.

    Raises
    ------
    ValueError
        The file is no such document.
    """
    try:
        return of_document(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{file} was not written by `python -m benchmarks.attention_readings --json` "
            f"({type(error).__name__}: {error})"
        ) from None


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", nargs="+", default=[one.name for one in INPUTS], metavar="NAME")
    parser.add_argument("--keys", nargs="+", type=int, default=KEYS, help="one length, or two")
    parser.add_argument("--mode", nargs="+", choices=ROUND_MODES, help="by default all")
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter")
    parser.add_argument("--moonmath", type=Path, help="MoonMath's code objects")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if len(options.keys) > 2 or span(options.keys) <= 0:
        parser.error("--keys: one length, or two, the longer one last")
    # Where an instruction rounds to bfloat16, kernels have its rounding alone.
    converts = amdattn.device_props().architecture.converts_bf16
    modes = options.mode or (("rtne",) if converts else ("rtne", "rtna", "rtz"))
    inputs = [named(name, is_tiled=name.endswith(".npz")) for name in options.inputs]
    found = all_figures(modes, options.aiter, options.moonmath, inputs, options.keys)
    if options.json:
        document = {
            "model": model_version(),
            "loops": found[CLK],
            "estimates": dict(list(found.items())[1:]),
        }
        print(json.dumps(document, indent=1))
        return 0
    for what, loops in found.items():
        print(f"{what}:\n\n{markdown(loops)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
