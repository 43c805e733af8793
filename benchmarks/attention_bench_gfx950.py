"""Write docs/studies/attention-bench-gfx950.md: ours beside others' kernels for MI355X.

    python -m benchmarks.attention_bench_gfx950 ROWS [--again]

ROWS is what `benchmarks.attention_rows` has filled, with what `benchmarks.attention_readings
--json` printed as loops.json. Kernels that have no rows there are not on the page, and shapes that
a kernel has not solved are "-". `--again` runs ours again before, on the device that AMDATTN_DEVICE
names: a quarter of an hour.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from amdattn.arch.energies import ENERGIES, Energies, mi355x
from amdattn.arch.power_cap import clock_by_matrix_use, gemm_tflops
from amdattn.bench.shapes import PRESETS
from amdattn.energy import Activity, estimate
from benchmarks import attention_readings
from benchmarks.attention_readings import Loops
from benchmarks.attention_rows import MODE, read, run_ours_again
from benchmarks.published_gfx950 import SAME_BOARD, published_us
from benchmarks.readings import LDS
from build_scripts.generated_page import page_parser, write_page

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "studies" / "attention-bench-gfx950.md"
TEXT = Path(__file__).with_name("attention_bench_gfx950.md.in")

Row = dict[str, Any]
OURS, PRODUCT = "amdattn", "MI355X"
PEERS = ("aiter", "hipkittens", "flydsl", "gluon", "triton")
MEASURED, PUBLISHED = LDS
# Of a peer: the least ratio of cycles and of estimated times that every shape should have, and of
# the geometric mean of the cycles.
BARS: dict[str, tuple[float | None, float | None, float | None]] = {
    "aiter": (1.20, 1.0, None),
    "hipkittens": (1.0, None, None),
    "flydsl": (1.0, None, None),
    "gluon": (1.0, None, None),
    "triton": (None, None, 1.3),
}
# Of ours, shapes of preset "gluon": share of the matrix peak, and causal rates over the open ones.
WHOLE = {"b32 h8 s8192 d128": 0.90}
CAUSAL = {"b32 h8 s8192 d128 causal": 0.93, "b32 h8 s16384 d128 causal": 0.96}
# Of the matrix limit, what our loop at 128 columns alone reaches:
# docs/studies/attention-forward-design.md.
OF_OUR_LOOP = 0.974
# What is not known of an MI355X's energies, one at a time.
VARIANTS: dict[str, dict[str, float]] = {
    "GEMM at 1.502 GHz, its matrix units never waiting": {"gemm_ghz": 1.502},
    "GEMM at 1.75 GHz, 14 % of its time waiting": {"gemm_ghz": 1.75},
    "32x32x16 as much over 16x16x32 as MI300X's 32x32x8 over 16x16x16": {"large_tile": 1.26},
    "350 W idle": {"idle_watts": 350.0},
    "a vector operation as a float32 FMA": {"plain_valu": 1.0},
}


class Rows:
    """Rows by kernel, shape and reading; those that were refused apart."""

    def __init__(self, rows: Iterable[Row]) -> None:
        every = list(rows)
        self.refused = [r for r in every if r["refused"]]
        self.solved = [r for r in every if not r["refused"]]
        self._known = {(r["peer"], r["shape"], r["lds"]): r for r in self.solved}

    def get(self, peer: str, shape: str, lds: str = MEASURED) -> Row | None:
        """None: it was not run or not solved."""
        return self._known.get((peer, shape, lds))

    def peers(self, lds: str = MEASURED) -> list[str]:
        """Others that have rows, in order."""
        return [p for p in PEERS if any(r["peer"] == p and r["lds"] == lds for r in self.solved)]

    def shapes(self, preset: str, lds: str = MEASURED) -> list[str]:
        """Of a preset: those of which ours has a row."""
        return [s for s in map(str, PRESETS[preset]) if self.get(OURS, s, lds)]


def clk(row: Row) -> float:
    """Cycles at the sustained clock, the floor between launches among them."""
    return float(row["times"]["at_sustained_us"]) * float(row["clocks"]["sustained_ghz"]) * 1e3


def activity(row: Row) -> Activity:
    """What the record's estimate was of."""
    energy = row["energy"]
    kflop = sum(energy["matrix_flops"].values()) / 1e3
    counts = {name: per * kflop for name, per in energy["per_matrix_kflop"].items()}
    if row["lds"] == PUBLISHED:  # bytes are counted by the clk of ports, which carry twice as many
        counts["lds_bytes"] *= 2
    return Activity(cycles=energy["cycles"], matrix_flops=energy["matrix_flops"], **counts)


def estimated_us(row: Row, energies: Energies) -> float:
    """Microseconds at the clock of an estimate, and the floor between launches."""
    between = float(row["clocks"]["launch_us"]) * max(len(row["launches"]) - 1, 0)
    return estimate(activity(row), energies).seconds * 1e6 + between


def estimated(row: Row) -> float:
    """By the table of an MI355X."""
    return estimated_us(row, ENERGIES[PRODUCT])


def ghz_by_use(row: Row) -> float:
    """The clock of the published line."""
    found = clock_by_matrix_use(PRODUCT, row["use"]["mfma_device"])
    assert found is not None
    return found


def by_use_us(row: Row) -> float:
    """Microseconds at that clock, and the floor between launches."""
    return clk(row) / ghz_by_use(row) / 1e3


def ratios(
    rows: Rows, peer: str, value: Callable[[Row], float], lds: str = MEASURED
) -> dict[str, float]:
    """How many times as much the peer takes, by shape of the grid."""
    found = {}
    for shape in rows.shapes("hipkittens", lds):
        ours, theirs = rows.get(OURS, shape, lds), rows.get(peer, shape, lds)
        if ours and theirs:
            found[shape] = value(theirs) / value(ours)
    return found


def mean(values: Iterable[float]) -> float:
    """Geometric."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def useful(row: Row) -> float:
    """Share of the device's matrix peak that is work on keys that rows see."""
    executed = sum(row["energy"]["matrix_flops"].values())
    return float(row["use"]["mfma_device"] * row["flops"] / executed)


# -- tables ----------------------------------------------------------------------------------------


def markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Numbers to the right."""
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def verdict(value: float, bar: float | None) -> str:
    """A number, and whether it reaches its bar."""
    if bar is None:
        return f"{value:.3f}"
    return f"{value:.3f} ({'>=' if value >= bar else '**<**'} {bar:g})"


def bars(rows: Rows, loops: Loops) -> str:
    """Least and mean ratios of each peer, by rate of the LDS; of workgroups, least of readings."""
    body = []
    for lds in LDS:
        for peer in rows.peers(lds):
            cycles = list(ratios(rows, peer, clk, lds).values())
            if not cycles:
                continue
            times = list(ratios(rows, peer, estimated, lds).values())
            least, least_time, least_mean = BARS[peer]
            body.append(
                [
                    f"{peer}, LDS {lds}",
                    str(len(cycles)),
                    verdict(min(cycles), least),
                    verdict(mean(cycles), least_mean),
                    verdict(min(times), least_time),
                    f"{mean(times):.3f}",
                    str(attention_readings.least(loops, peer, MODE) or "-"),
                ]
            )
    head = ["peer", "shapes", "cycles: least", "cycles: mean", "time est.: least", "mean"]
    head.append("one workgroup, model-like: least over the readings")
    return markdown(head, body)


def grid(rows: Rows, cell: Callable[[Row, Row], str], lds: str = MEASURED) -> str:
    """A row per shape, a column per peer, of theirs and ours."""
    peers = rows.peers(lds)
    body = []
    for shape in rows.shapes("hipkittens", lds):
        ours = rows.get(OURS, shape, lds)
        assert ours
        found = [rows.get(peer, shape, lds) for peer in peers]
        if not any(found):
            continue
        body.append(
            [shape, cell(ours, ours), *("-" if r is None else cell(r, ours) for r in found)]
        )
    return markdown(["shape", OURS, *peers], body)


def by_use(rows: Rows) -> str:
    """Times at the clock of the published line: ours with it and the rate, and others'."""
    most, peers = gemm_tflops(PRODUCT) or math.inf, rows.peers()
    body = []
    for shape in rows.shapes("hipkittens"):
        ours = rows.get(OURS, shape)
        assert ours
        rates = [
            ours["flops"] / us / 1e6
            for us in (by_use_us(ours), float(ours["times"]["at_sustained_us"]))
        ]
        cells = [f"{by_use_us(ours) / 1e3:.3f}", f"{ghz_by_use(ours):.2f}"]
        cells += [f"{rate:.0f}" + " **>**" * (rate > most) for rate in rates]
        for peer in peers:
            row = rows.get(peer, shape)
            if row is None:
                cells.append("-")
                continue
            us = by_use_us(row)
            cells.append(f"{us / 1e3:.3f}, {us / by_use_us(ours):.3f}")
        body.append([shape, *cells])
    head = ["shape", f"{OURS}, ms", "GHz", "TFLOP/s", "at 1.75 GHz"]
    return markdown([*head, *(f"{peer}: ms, / ours" for peer in peers)], body)


def bars_by_use(rows: Rows) -> str:
    """Least and mean ratios of these times."""
    body = []
    for peer in rows.peers():
        if found := list(ratios(rows, peer, by_use_us).values()):
            body.append([peer, str(len(found)), f"{min(found):.3f}", f"{mean(found):.3f}"])
    return markdown(["peer", "shapes", "time: least", "mean"], body)


def limits(rows: Rows, peer: str = "aiter", lds: str = PUBLISHED) -> str:
    """How many times as fast as a peer any kernel could be, and what ours has of that."""
    body = []
    bar = BARS[peer][0] or 1.0
    for shape in rows.shapes("hipkittens", lds):
        ours, theirs = rows.get(OURS, shape, lds), rows.get(peer, shape, lds)
        if ours is None or theirs is None:
            continue
        most, ratio = 1 / useful(theirs), clk(theirs) / clk(ours)
        busy = f"{theirs['use']['mfma_device']:.1%}, {useful(theirs):.1%}"
        cells = [f"{most:.3f}", f"{bar / most:.1%}", f"{ratio:.3f}", f"{ratio / most:.1%}"]
        body.append([shape, busy, *cells])
    head = ["shape", f"{peer}: busy, useful", "limit of any kernel", f"{bar:.2f} needs"]
    return markdown([*head, OURS, "of the limit"], body)


def out_of_reach(rows: Rows, share: float = 1.0, peer: str = "aiter", lds: str = PUBLISHED) -> str:
    """Of how many shapes the bar asks for more than a share of what any kernel could do."""
    bar = BARS[peer][0] or 1.0
    found = [
        bar * useful(theirs)
        for shape in ratios(rows, peer, clk, lds)
        if (theirs := rows.get(peer, shape, lds))
    ]
    return f"{sum(asked > share for asked in found)} of {len(found)}"


def causal_rate(rows: Rows, peer: str, shape: str) -> float | None:
    """Useful operations per clk of a causal shape over those of the same without a mask."""
    row, free = rows.get(peer, shape), rows.get(peer, shape.removesuffix(" causal"))
    if row is None or free is None or row is free:
        return None
    return float(row["flops"] / clk(row) / (free["flops"] / clk(free)))


def whole(rows: Rows) -> str:
    """The operation of the tutorials: share of the matrix peak, and what a causal mask costs."""
    body = []
    for shape in rows.shapes("gluon"):
        cells = [shape]
        for peer in (OURS, *rows.peers()):
            row, rate = rows.get(peer, shape), causal_rate(rows, peer, shape)
            use = "-" if row is None else f"{row['use']['mfma_device']:.1%}"
            cells.append(use if rate is None else f"{use}, {rate:.1%}")
        body.append(cells)
    return markdown(["shape", OURS, *rows.peers()], body)


def published(rows: Rows) -> str:
    """Published times beside the estimate's and those of the constant clock."""
    body = []
    for peer in rows.peers():
        for shape in rows.shapes("hipkittens"):
            row, us = rows.get(peer, shape), published_us(peer, shape)
            if row is None or us is None:
                continue
            found = estimate(activity(row), ENERGIES[PRODUCT])
            time = estimated(row)
            body.append(
                [
                    f"{peer} {shape}",
                    f"{us / 1e3:.3f}",
                    f"{time / 1e3:.3f} ({time / us - 1:+.1%})",
                    f"{row['times']['at_sustained_us'] / us - 1:+.1%}",
                    f"{found.clock_ghz:.2f}",
                    f"{clk(row) / us / 1e3:.2f}",
                ]
            )
    head = ["kernel", "published, ms", "estimate", "at 1.75 GHz", "GHz est.", "GHz implied"]
    return markdown(head, body)


def deviations(rows: Rows, energies: Energies, long_only: bool) -> list[float]:
    """Of the estimate from published times; long: 1 ms at least."""
    found = []
    for peer in rows.peers():
        for shape in rows.shapes("hipkittens"):
            row, us = rows.get(peer, shape), published_us(peer, shape)
            if row is not None and us is not None and not (long_only and us < 1000):
                found.append(estimated_us(row, energies) / us - 1)
    return found


def variants(rows: Rows) -> str:
    """What comes out with other guesses."""
    body = []
    tables: dict[str, Energies] = {"as taken": ENERGIES[PRODUCT]}
    tables |= {name: mi355x(**guess) for name, guess in VARIANTS.items()}
    for name, energies in tables.items():
        off = deviations(rows, energies, long_only=True)
        cells = [name, f"{energies.matrix_pj_per_flop['32x32x16']:.3f}"]
        mean_off = sum(map(abs, off)) / max(len(off), 1)
        cells.append(f"{mean_off:.1%}, {min(off):+.0%} to {max(off):+.0%}" if off else "-")
        for peer in rows.peers():
            of_peer = ratios(rows, peer, lambda row: estimated_us(row, energies))  # noqa: B023
            cells.append(f"{min(of_peer.values()):.3f}" if of_peer else "-")
        body.append(cells)
    peers = [f"{peer}, least" for peer in rows.peers()]
    return markdown(["guess", "pJ/FLOP", "off published, mean and range", *peers], body)


def stalls(rows: Rows) -> str:
    """Where waves wait, at 8192 rows."""
    shapes = [s for s in rows.shapes("hipkittens") if " s8192 " in s]
    chosen = [r for s in shapes for p in (OURS, *rows.peers()) if (r := rows.get(p, s))]
    reasons = {reason for r in chosen for reason, share in r["stalls"].items() if share >= 0.03}
    order = sorted(reasons, key=lambda reason: -sum(r["stalls"].get(reason, 0) for r in chosen))
    body = [
        [
            f"{r['peer']} {r['shape']}",
            *(f"{r['use'][unit]:.0%}" for unit in ("mfma", "valu", "lds")),
            *(f"{r['stalls'].get(reason, 0):.0%}" for reason in order),
        ]
        for r in chosen
    ]
    return markdown(["kernel", "MFMA", "VALU", "LDS", *order], body)


def losses(rows: Rows) -> str:
    """Shapes at which ours does not reach a bar."""
    lines = []
    for shape, bar in WHOLE.items():
        row = rows.get(OURS, shape)
        if row and row["use"]["mfma_device"] < bar:
            lines.append(f"- {shape}: {row['use']['mfma_device']:.1%} of the peak < {bar:.0%}")
    for shape, bar in CAUSAL.items():
        rate = causal_rate(rows, OURS, shape)
        if rate is not None and rate < bar:
            lines.append(f"- {shape}: {rate:.1%} of the rate without a mask < {bar:.0%}")
    for lds, peer in ((way, name) for way in LDS for name in rows.peers(way)):
        least, least_time, _ = BARS[peer]
        for what, wanted, value in (("cycles", least, clk), ("time", least_time, estimated)):
            of_peer = ratios(rows, peer, value, lds) if wanted else {}
            missed = {shape: ratio for shape, ratio in of_peer.items() if ratio < (wanted or 0)}
            if missed:
                worst = min(missed, key=lambda shape: missed[shape])
                lines.append(
                    f"- {peer}, LDS {lds}, {what}: {len(missed)} of {len(of_peer)} shapes below "
                    f"{wanted:g}, {worst} with {missed[worst]:.3f}"
                )
    return "\n".join(lines) + "\n" if lines else "None.\n"


def objects(row: Row) -> Iterable[tuple[str, str]]:
    """Kernels of a row, and the hashes of their code objects."""
    return zip(row["kernel"].split(" + "), row["sha256"].split(" + "), strict=False)


def remarks(rows: Rows) -> str:
    """Sampling, objects, and what was refused."""
    worst: dict[str, float] = {}
    for r in rows.solved:
        error = abs(r["sampled"].get("check_error", 0.0))
        worst[r["peer"]] = max(worst.get(r["peer"], 0.0), error)
    sampled = sum(bool(r["sampled"]) for r in rows.solved)
    listed = ", ".join(f"{peer} {error:.2%}" for peer, error in worst.items())
    own = {(k, sha[:12]) for r in rows.solved if r["peer"] == OURS for k, sha in objects(r)}
    reasons: dict[tuple[str, str], int] = {}
    for r in rows.refused:
        reasons[r["peer"], r["refused"]] = reasons.get((r["peer"], r["refused"]), 0) + 1
    lines = [
        f"{sampled} of {len(rows.solved)} operations were sampled, the others simulated in full. "
        f"The prediction of one more\nlength was off by at most: {listed}.\n",
        "Our objects: " + ", ".join(f"{kernel} ({sha})" for kernel, sha in sorted(own)) + ".\n",
        *(f"- {peer}, {count} rows: {reason}" for (peer, reason), count in reasons.items()),
    ]
    return "\n".join(lines) + "\n"


def render(found: Sequence[Row], workgroups: Mapping[str, Loops]) -> str:
    """Markdown of the page.

    Raises
    ------
    ValueError
        Ours has no rows.
    """
    models = sorted({row["model"] for row in found})
    rows = Rows(found)
    if not rows.shapes("hipkittens"):
        raise ValueError("rows of ours are needed")
    long = deviations(rows, ENERGIES[PRODUCT], long_only=True)
    tables = {
        "model": " and ".join(models),
        "summary": attention_readings.summary(workgroups),
        "bars": bars(rows, workgroups[attention_readings.CLK]),
        "losses": losses(rows),
        "whole": whole(rows),
        "cycles": grid(rows, lambda row, _: f"{clk(row) / 1e6:.3f}"),
        "ratios": grid(rows, lambda row, ours: f"{clk(row) / clk(ours):.3f}"),
        "use": grid(rows, lambda row, _: f"{row['use']['mfma_device']:.1%}"),
        "times": grid(rows, lambda row, _: f"{estimated(row) / 1e3:.3f}"),
        "time_ratios": grid(rows, lambda row, ours: f"{estimated(row) / estimated(ours):.3f}"),
        "by_use": by_use(rows),
        "bars_by_use": bars_by_use(rows),
        "most": f"{gemm_tflops(PRODUCT):.0f}",
        "lds": grid(rows, lambda row, ours: f"{clk(row) / clk(ours):.3f}", PUBLISHED),
        "loops": attention_readings.markdown(workgroups[attention_readings.CLK]),
        "limits": limits(rows),
        "out_of_reach": out_of_reach(rows),
        "hardly": out_of_reach(rows, OF_OUR_LOOP),
        "published": published(rows),
        "long": f"{sum(map(abs, long)) / len(long):.1%}" if long else "-",
        "variants": variants(rows),
        "stalls": stalls(rows),
        "remarks": remarks(rows),
        "board": ", ".join(f"{k} {tf} TFLOP/s at {n} clk" for k, (tf, n) in SAME_BOARD.items()),
    }
    text = TEXT.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = text.replace("{" + name + "}", table.rstrip("\n"))
    return text


def main() -> int:
    """Command line."""
    parser = page_parser(__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--again", action="store_true", help="run ours again first")
    args = parser.parse_args()
    if args.again:
        run_ours_again(args.rows)
    workgroups = attention_readings.read(args.rows / "loops.json")
    return write_page(PAGE, render(read(args.rows), workgroups), args.check)


if __name__ == "__main__":
    sys.exit(main())
