"""Write docs/studies/performance-model.md: the performance model against what others published.

    python -m benchmarks.performance_model --aiter DIR --moonmath DIR [--work DIR]

AITER is a checkout of ROCm/aiter; MoonMath a directory with moonmath_rtz.hsaco, moonmath_rtna.hsaco
and moonmath_rtne.hsaco (the document says how they are compiled). Nothing of theirs is copied.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from amdattn.bench.clocks import clocks
from amdattn.energy import LARGE_TILE, PJ_PER_FMA, PLAIN_VALU, mi300x
from benchmarks.performance_model import figures, runs, times
from benchmarks.performance_model.kernels import (
    NO_RESCALING_SCALE,
    ROUND_MODES,
    SIMDS,
    AiterForward,
    MoonMath,
    loop,
)
from benchmarks.performance_model.published import (
    AITER_LDS,
    AITER_RTNA_LOOP,
    COUNTERS,
    MFMA_CLK,
    MILLISECONDS,
    READ_B128_GROUPS,
    RESIDENT_WAVES_OCCUPANCY,
    VALU_CLK,
    WRITE_B128_GROUPS,
)
from benchmarks.performance_model.variants import VARIANTS, build

ROOT = Path(__file__).resolve().parents[2]
_TEMPLATE = Path(__file__).with_name("page.md.in")
_NAMES = {"aiter": "AITER", "moonmath": "MoonMath"}
# Bounds of the cycle ratios at constant clock against published time ratios, in per cent.
_AITER_BOUNDS = {"rtna": 9.0, "rtne": 12.0}
_MOONMATH_BOUND = 6.0


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def percent(value: float, digits: int = 1) -> str:
    """Signed, of a ratio minus one."""
    return f"{100 * value:+.{digits}f} %"


def held(deviation: float, bound: float) -> str:
    """Whether a deviation in per cent is within a bound."""
    return "yes" if abs(deviation) <= bound else "**missed**"


def exact(loops: runs.Loops) -> str:
    """Counts per 64 rows of KV."""
    rows = []
    for (kernel, mode), cost in loops.items():
        ((shape, flops),) = cost.mfma_flops.items()
        size = math.prod(int(x) for x in shape.split("x"))
        waves_of_simd = 2
        valu = (cost.valu - flops / (2 * size) / SIMDS * 4) / waves_of_simd
        lds = f"{cost.lds:.0f} / {AITER_LDS}" if kernel == "aiter" else f"{cost.lds:.0f} / -"
        rows.append(
            (
                _NAMES[kernel],
                mode.upper(),
                f"{cost.mfma:.0f} / {MFMA_CLK[kernel]}",
                f"{valu:.0f} / {VALU_CLK[kernel][mode]}",
                lds,
                f"{cost.lds_conflict:.0f}",
            )
        )
    head = ("kernel", "mode", "MFMA clk of a SIMD", "VALU clk of a wave", "LDS clk of a port")
    return table((*head, "of which conflicts (modelled)"), rows)


def curve(use: dict[int, float], cold: dict[int, float]) -> str:
    """MFMA use while resident."""
    rows = []
    for seqlen, modelled in use.items():
        util, occupancy = COUNTERS[seqlen]
        measured = util * RESIDENT_WAVES_OCCUPANCY / occupancy
        off = 100 * modelled - measured
        rows.append(
            (
                seqlen,
                runs.CURVE_WORKGROUPS[seqlen],
                f"{100 * modelled:.1f} %",
                f"{measured:.1f} %",
                f"{off:+.1f}",
                held(off, 5),
                f"{100 * cold[seqlen]:.1f} %",
            )
        )
    head = ("seqlen", "workgroups simulated", "modelled", "published", "points", "within 5 points")
    return table((*head, "modelled, first launch"), rows)


def cycle_ratios(loops: runs.Loops) -> str:
    """Constant clock, nothing fitted."""
    modelled, measured = times.loop_ratios(loops), times.ratios(times.published())
    rows = []
    for name, kernel, mode, other in times.RATIOS:
        off = 100 * (modelled[name] / measured[name] - 1)
        bound = _AITER_BOUNDS[mode] if kernel == "aiter" else _MOONMATH_BOUND
        verdict = "(order)" if other else f"{held(off, bound)} ({bound:g} %)"
        rows.append(
            (name, f"{modelled[name]:.3f}", f"{measured[name]:.3f}", percent(off / 100), verdict)
        )
    head = ("ratio", "of cycles, modelled", "of times, published", "deviation", "within bound")
    return table(head, rows)


def order(loops: runs.Loops) -> str:
    """The strict orders that a ranking needs."""
    claims = []
    for kernel in _NAMES:
        clk = [loops[kernel, mode].clk for mode in ROUND_MODES]
        claims.append((f"{_NAMES[kernel]}: cycles RTZ < RTNA < RTNE", clk[0] < clk[1] < clk[2]))
    lead = times.loop_ratios(loops)
    values = [lead[f"MoonMath over AITER, {mode.upper()}"] for mode in ROUND_MODES]
    claims.append(("MoonMath over AITER: RTZ < RTNA < RTNE", values[0] < values[1] < values[2]))
    return table(("order", "holds"), ((c, "yes" if ok else "**no**") for c, ok in claims))


def unscaled(moonmath: Path) -> str:
    """MoonMath's cycle ratios when its accumulators are never rescaled."""
    clk = {mode: loop(MoonMath(moonmath, mode, NO_RESCALING_SCALE)).clk for mode in ROUND_MODES}
    return f"{clk['rtna'] / clk['rtz']:.3f} and {clk['rtne'] / clk['rtz']:.3f}"


def seven(loops: runs.Loops) -> str:
    """Time ratios of the energy-and-clock estimate."""
    measured = times.ratios(times.published())
    plain = times.ratios(times.estimated(loops, mi300x(large_tile=1, plain_valu=1)))
    fitted = times.ratios(times.estimated(loops, mi300x()))
    rows = [
        (
            name,
            f"{measured[name]:.3f}",
            f"{plain[name]:.3f} ({percent(plain[name] / measured[name] - 1)})",
            f"{fitted[name]:.3f} ({percent(fitted[name] / measured[name] - 1)})",
            held(100 * (fitted[name] / measured[name] - 1), 5),
        )
        for name in measured
    ]
    return table(
        ("ratio of times", "published", "estimate, nothing fitted", "estimate", "within 5 %"), rows
    )


def fitted(loops: runs.Loops) -> str:
    """What the grid gives now: the constants of amdattn.energy were taken from it."""
    energies = times.fit(loops, ROUND_MODES)
    large = energies.matrix_pj_per_flop["32x32x8"] / energies.matrix_pj_per_flop["16x16x16"]
    return f"{large:.2f} and {energies.vector_pj_per_slot / PJ_PER_FMA:.2f}"


def points(loops: runs.Loops) -> str:
    """The 54 published times."""
    measured = times.published()
    found = times.estimated(loops, mi300x())
    clock = times.estimates(loops, mi300x())
    rows = []
    for size in MILLISECONDS:
        for kernel in _NAMES:
            row: list[object] = ["b{} h{} s{}".format(*size), _NAMES[kernel]]
            for mode in ROUND_MODES:
                key = (kernel, mode, size)
                row.append(
                    f"{1e3 * found[key]:.2f} / {1e3 * measured[key]:.2f}"
                    f" ({percent(found[key] / measured[key] - 1)}, {clock[key].clock_ghz:.2f} GHz)"
                )
            rows.append(row)
    return table(("shape", "kernel", *(mode.upper() for mode in ROUND_MODES)), rows)


def summary(loops: runs.Loops) -> str:
    """Deviations over the 54 points, by how cycles became time."""
    arch = clocks("gfx942")
    measured = times.published()
    ways = {
        f"cycles at the peak clock, {arch.peak_ghz} GHz (a lower bound)": times.at_clock(
            loops, arch.peak_ghz
        ),
        f"cycles at the sustained clock, {arch.sustained_ghz} GHz": times.at_clock(
            loops, arch.sustained_ghz
        ),
        "estimate, nothing fitted": times.estimated(loops, mi300x(large_tile=1, plain_valu=1)),
        "estimate": times.estimated(loops, mi300x()),
        "estimate, both numbers fitted to RTZ alone": times.estimated(
            loops, times.fit(loops, ["rtz"])
        ),
    }
    rows = []
    for name, found in ways.items():
        off = [found[key] / measured[key] - 1 for key in measured]
        mean = sum(map(abs, off)) / len(off)
        row = [name, f"{100 * mean:.1f} %", percent(min(off)), percent(max(off))]
        rows.append([*row, sum(abs(x) <= 0.08 for x in off)])
    return table(("time from", "mean deviation", "least", "greatest", "within 8 %, of 54"), rows)


def lds() -> str:
    """Clk of a port for one instruction of 64 lanes, by pattern of addresses."""
    patterns = {
        "consecutive": lambda bytes_, lane: lane * bytes_,
        "rows of 128 B": lambda bytes_, lane: 128 * lane,
        "rows of 144 B": lambda bytes_, lane: 144 * lane,
        "one address": lambda bytes_, lane: 0,
    }
    rows = []
    for name in runs.LDS_FORMS:
        size = runs.lds_bytes(name)
        cells = []
        for pattern in patterns.values():
            clk, conflict = runs.lds_clk(name, functools.partial(pattern, size))
            cells.append(f"{clk} ({conflict})" if conflict else str(clk))
        rows.append((f"`{name}`", *cells))
    return table(("instruction", *patterns), rows)


def phases() -> str:
    """Which lanes are served together."""
    rows = []
    for name, groups, source in (
        ("ds_read_b128", READ_B128_GROUPS, "AMD's article"),
        ("ds_write_b128", WRITE_B128_GROUPS, "AMD's article"),
        ("ds_read_b96", READ_B128_GROUPS, "HipKittens' probes (MI355X)"),
    ):
        found = runs.served_together(name)
        same = {frozenset(g) for g in found} == {frozenset(g) for g in groups}
        shown = " ".join(_lanes(group) for group in found[: len(found) // 2])
        rows.append((f"`{name}`", len(found), shown, source, "yes" if same else "**no**"))
    head = ("instruction", "groups", "lanes (then + 32)", "published", "as published")
    return table(head, rows)


def _lanes(group: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for lane in group:
        if spans and spans[-1][1] == lane - 1:
            spans[-1][1] = lane
        else:
            spans.append([lane, lane])
    return "{" + ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in spans) + "}"


def extrapolated(loops: runs.Loops, aiter: Path, moonmath: Path) -> str:
    """Base and loop of 1024 and 2048 rows against a full simulation of 6144."""
    rows = []
    for kernel, mode in (("aiter", "rtz"), ("aiter", "rtne"), ("moonmath", "rtz")):
        one = AiterForward(aiter, mode) if kernel == "aiter" else MoonMath(moonmath, mode)
        guess, full = runs.extrapolation(one, loops[kernel, mode])
        off = guess / full - 1
        rows.append(
            (_NAMES[kernel], mode.upper(), f"{guess:.0f}", f"{full:.0f}", percent(off, 2),
             held(100 * off, 1))
        )  # fmt: skip
    head = ("kernel", "mode", "extrapolated clk", "simulated clk", "deviation", "within 1 %")
    return table(head, rows)


def readings(loops: runs.Loops, exclusive: runs.Loops) -> str:
    """The loops if transcendentals overlap, and if they wait for the matrix unit."""
    rows = []
    for (kernel, mode), cost in loops.items():
        other = exclusive[kernel, mode].clk
        known = AITER_RTNA_LOOP if (kernel, mode) == ("aiter", "rtna") else None
        public = (
            "-"
            if known is None
            else f"{known} ({percent(cost.clk / known - 1)}, " + (f"{percent(other / known - 1)})")
        )
        use = [f"{clk:.0f} ({cost.mfma / clk:.1%})" for clk in (cost.clk, other)]
        rows.append((_NAMES[kernel], mode.upper(), *use, public))
    head = ("kernel", "mode", "overlapping: clk (MFMA use)", "exclusive: clk (MFMA use)")
    return table((*head, "published (deviations)"), rows)


def coexecution() -> str:
    """The model's table of what runs beside a matrix instruction."""
    head = ("arch", "instructions", "beside an MFMA", "clk after its end", "evidence")
    return table(head, figures.coexecution())


def sensitivity(loops: runs.Loops, aiter: Path, moonmath: Path, work: Path) -> str:
    """Headline ratios with one constant changed at a time."""
    names = [name for name, *_ in times.RATIOS]
    short = [name.replace("MoonMath over AITER,", "MM/AITER").replace("MoonMath", "MM")
             for name in names]  # fmt: skip
    rows = [_sensitivity_row("as it is", "", loops)]
    with tempfile.TemporaryDirectory() as folder:
        for variant in VARIANTS:
            for value in variant.values:
                out = Path(folder) / f"{variant.constant}-{value}"
                library = build({variant.constant: value}, work, out)
                command = [sys.executable, "-m", "benchmarks.performance_model.runs"]
                done = subprocess.run(
                    [*command, "--aiter", str(aiter), "--moonmath", str(moonmath)],
                    cwd=ROOT,
                    env=os.environ | {"AMDATTN_VDEV_LIBRARY": str(library)},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                changed = runs.read_loops(done.stdout)
                label = f"{variant.value} -> {value}"
                rows.append(_sensitivity_row(f"`{variant.constant}`", label, changed))
                print(*rows[-1], file=sys.stderr, flush=True)
    notes = "\n".join(f"- `{v.constant}`: {v.meaning}." for v in VARIANTS)
    head = ("constant", "value", "AITER RTNA clk", "MM RTZ clk", *short)
    return table(head, rows) + "\n\n" + notes


def _sensitivity_row(constant: str, value: str, loops: runs.Loops) -> list[str]:
    clk = [f"{loops[key].clk:.0f}" for key in (("aiter", "rtna"), ("moonmath", "rtz"))]
    return [constant, value, *clk, *(f"{x:.3f}" for x in times.loop_ratios(loops).values())]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, required=True)
    parser.add_argument("--moonmath", type=Path, required=True)
    parser.add_argument(
        "--work",
        type=Path,
        default=ROOT / "build" / "virtual_device",
        help="objects of build_scripts/virtual_device.py, for the sensitivities",
    )
    page = ROOT / "docs" / "studies" / "performance-model.md"
    parser.add_argument("--out", type=Path, default=page)
    args = parser.parse_args()
    loops = runs.all_loops(args.aiter, args.moonmath)
    exclusive = runs.all_loops(args.aiter, args.moonmath, "trans-exclusive")
    rtna = loops["aiter", "rtna"]
    warm, cold = (runs.resident_use(args.aiter, warm_code=code) for code in (True, False))
    text = _TEMPLATE.read_text(encoding="utf-8").format(
        exact=exact(loops),
        fit=fitted(loops),
        loop=f"{rtna.clk:.0f}",
        published_loop=AITER_RTNA_LOOP,
        loop_deviation=percent(rtna.clk / AITER_RTNA_LOOP - 1),
        curve=curve(warm, cold),
        warm_start=f"{runs.start_up(warm, rtna) / 1000:.1f}",
        cold_start=f"{runs.start_up(cold, rtna) / 1000:.1f}",
        cycle_ratios=cycle_ratios(loops),
        order=order(loops),
        unscaled=unscaled(args.moonmath),
        rescale=f"{100 * loops['moonmath', 'rtz'].rescale_rate:.0f}",
        large_tile=LARGE_TILE,
        plain_valu=PLAIN_VALU,
        seven=seven(loops),
        summary=summary(loops),
        points=points(loops),
        lds=lds(),
        phases=phases(),
        extrapolation=extrapolated(loops, args.aiter, args.moonmath),
        figures=table(figures.HEAD, figures.figures()),
        beside=table(("instruction", "hidden", "clk of the next", "public"), figures.beside()),
        coexecution=coexecution(),
        readings=readings(loops, exclusive),
        sensitivity=sensitivity(loops, args.aiter, args.moonmath, args.work),
    )
    args.out.write_text(text, encoding="utf-8")
    print(args.out)


if __name__ == "__main__":
    main()
