"""Prints `gemm_nt` beside its peers, modelled, as Markdown and as JSON.

    python benchmarks/decode_gemm.py [--aiter DIR] [--flydsl DIR] [--triton] [--json FILE]
                                     [--clock-mhz MHZ] [--reading NAME]
                                     [--shapes M,N,K[,bias] ...]

The fastest attempt of each peer counts; `gemm_peers` has them, and FILE says which it was. DIR of
--flydsl is what `flydsl_hgemm.py` wrote. Peers add no bias. A shape's caches are cold. Neither
times nor the floor include a launch; "of floor" includes one on both sides, and means are also
given with one on every side. Peers that FILE already has are taken from there: remove it to model
all of them again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gemm_peers import Aiter, Attempt, FlyDsl, Operands, Peer, Triton, padded_n

import amdattn
from amdattn.arch import readings
from amdattn.bench.kernels import Functions
from amdattn.device import runtime
from amdattn.ops.gemm.cost import floor

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
# N, K and whether there is a bias: the grid of K = 7168, then products of gpt-oss and DeepSeek V3.
GRID = ((2560, 7168, False), (2880, 7168, False), (5120, 7168, False), (7168, 7168, False))
MODELS = (
    *((128, 2880, True), (640, 2880, True), (2880, 2048, True), (2880, 4096, True)),
    *((5120, 2880, True), (2112, 7168, False)),
)
SHAPES = [(m, *rest) for rest in GRID + MODELS for m in ROWS]
_WIDEST_TILE = 256  # of any peer
_MOST_PARTS = 16


def random_bits(rows: int, columns: int) -> amdattn.DeviceArray:
    """An operand; what it holds does not matter for the time."""
    some = np.random.default_rng(0).standard_normal(1 << 16, np.float32).astype(ml_dtypes.bfloat16)
    return amdattn.asarray(np.resize(some, (rows, columns)))


def ours(
    m: int, n: int, k: int, bias: bool, clock_mhz: int, reading: str
) -> tuple[float, amdattn.GemmPlan]:
    """Modelled us, and the plan."""
    plan = amdattn.plan_gemm(m, n, k, device=amdattn.device_props(), bias=bias)
    a, b = random_bits(m, k), random_bits(n, k)
    of_n = amdattn.asarray(np.ones(n, ml_dtypes.bfloat16)) if bias else None
    out, workspace = amdattn.empty((m, n)), plan.new_workspace()
    with amdattn.virtual.profile(clock_mhz=clock_mhz, reading=reading) as profile:
        plan.run(a, b, out, of_n, workspace=workspace)
        runtime.synchronize()
    return profile.launches[0].cycles / clock_mhz, plan


def modelled(attempt: Attempt, functions: Functions, clock_mhz: int, reading: str) -> float:
    """Us of all its launches."""
    with amdattn.virtual.profile(
        clock_mhz=clock_mhz, simulated_workgroups=attempt.workgroups, reading=reading
    ) as profile:
        for launch in attempt.launches:
            launch.enqueue(functions)
        runtime.synchronize()
    return sum(launch.cycles for launch in profile.launches) / clock_mhz


def fastest(
    peer: Peer, m: int, n: int, k: int, functions: Functions, clock_mhz: int, reading: str
) -> tuple[float, str] | None:
    """Modelled us of a peer's fastest attempt, and its name; None: it has none."""
    rows = max(padded_n(n, tile, 1) for tile in (64, 128, _WIDEST_TILE))
    a, b, out = random_bits(m, k), random_bits(rows, k), amdattn.empty((m, rows))
    bias = amdattn.asarray(np.zeros(rows, np.float32))
    parts = amdattn.empty((_MOST_PARTS * m, n), "float32")
    found = []
    cleared = np.zeros(1 << 14, np.uint32)
    zeros = amdattn.asarray(cleared)
    at = Operands(a.address, b.address, out.address, bias.address, zeros.address, parts.address)
    for attempt in peer(m, n, k, at):
        runtime.get().upload(zeros.address, cleared.ctypes.data, cleared.nbytes)
        found.append((modelled(attempt, functions, clock_mhz, reading), attempt.name))
    return min(found, default=None)


def geomean(values: list[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def summarise(rows: list[dict[str, Any]], peers: list[str], launch_us: float) -> None:
    """Print geometric means, over the peers, also with a launch on both sides, and the floor."""
    for title, times in (
        ("Best peer", [(row["ratio"] * row["us"], row["us"]) for row in rows if "ratio" in row]),
        *((peer, [(row[peer][0], row["us"]) for row in rows if row[peer]]) for peer in peers),
    ):
        if times:
            ratios = [theirs / us for theirs, us in times]
            launched = [(theirs + launch_us) / (us + launch_us) for theirs, us in times]
            faster = sum(ratio > 1 for ratio in ratios)
            print(
                f"\n{title} / gemm_nt: geometric mean {geomean(ratios):.3f} of {len(ratios)} "
                f"shapes, at least {min(ratios):.3f}; gemm_nt is the faster one in {faster}. With "
                f"a launch of {launch_us} us on both sides {geomean(launched):.3f}."
            )
    # Whichever the peer: best / us, of best / floor.
    of_floor = geomean([row["of_floor"] for row in rows])
    print(
        f"\nOf the speed-up over peers that a kernel at the floor would have, a launch on every "
        f"side: {1 / of_floor:.1%}, by geometric mean."
    )
    few = [row["of_floor"] for row in rows if row["m"] <= 16]
    if few:
        print(f"At 16 rows and fewer at most {max(few):.2f} of the floor, with a launch on both.")


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter")
    parser.add_argument("--flydsl", type=Path, help="what flydsl_hgemm.py wrote")
    parser.add_argument("--triton", action="store_true")
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.add_argument("--clock-mhz", type=int, help="default: the device's greatest")
    parser.add_argument("--reading", default=readings.DEFAULT, help="docs/generated/readings.md")
    parser.add_argument("--shapes", nargs="*", help="M,N,K or M,N,K,bias")
    options = parser.parse_args()
    shapes = SHAPES
    if options.shapes:
        shapes = [
            (*map(int, shape.removesuffix(",bias").split(",")), shape.endswith(",bias"))
            for shape in options.shapes
        ]
    props = amdattn.device_props()
    peers: dict[str, Peer] = {}
    if options.aiter:
        peers["AITER"] = Aiter(options.aiter, props)
    if options.flydsl:
        peers["FlyDSL"] = FlyDsl(options.flydsl, props)
    if options.triton:
        peers["Triton"] = Triton(props)
    functions, launch_us = Functions(), props.architecture.launch_us
    clock = options.clock_mhz or round(1000 * props.peak_clock_ghz)
    known = {}
    if options.json and options.json.exists():
        document = json.loads(options.json.read_text())
        if (document["clock_mhz"], document.get("reading")) != (clock, options.reading):
            parser.error(f"{options.json} is of another clock than {clock} MHz, or reading")
        known = {(row["m"], row["n"], row["k"]): row for row in document["rows"]}
    print(f"us, modelled at {clock} MHz\n")
    heads = ["m, n, k", "floor", "gemm_nt", "of floor", "kernel"]
    heads += peers
    heads += ["best peer / gemm_nt"] if peers else []
    print(f"| {' | '.join(heads)} |\n|---|{'--:|' * (len(heads) - 1)}")
    rows = []
    for m, n, k, bias in shapes:
        us, plan = ours(m, n, k, bias, clock, options.reading)
        floor_us, _ = floor(plan.problem, plan.props)
        kernel = plan.kernel.name.rpartition("_")[2]
        columns = dict(plan.launches[0].args)["tile_n"]
        kernel += f" of {columns}" * (columns < plan.kernel.tile["n"])
        kernel += f", {plan.splits} splits" * (plan.splits > 1)
        row = {
            "m": m,
            "n": n,
            "k": k,
            "bias": bias,
            "floor_us": floor_us,
            "us": us,
            "of_floor": (us + launch_us) / (floor_us + launch_us),
            "kernel": kernel,
        }
        cells = [f"{m}, {n}, {k}" + ", bias" * bias, f"{floor_us:.2f}", f"{us:.2f}"]
        cells += [f"{row['of_floor']:.2f}", kernel]
        times = {}
        for name, peer in peers.items():
            if name in known.get((m, n, k), {}):
                found = known[m, n, k][name]
            else:
                found = fastest(peer, m, n, k, functions, clock, options.reading)
            row[name] = found
            cells.append(f"{found[0]:.2f}" if found else "-")
            if found:
                times[name] = found[0]
        if times:
            best = min(times, key=times.__getitem__)
            row["ratio"] = times[best] / us
            cells.append(f"{row['ratio']:.2f} ({best})")
        print(f"| {' | '.join(cells)} |", flush=True)
        rows.append(row)
        if options.json:  # after each row, since they take their time
            kept = {(each["m"], each["n"], each["k"]): each for each in (*known.values(), *rows)}
            document = {"clock_mhz": clock, "reading": options.reading, "rows": list(kept.values())}
            options.json.write_text(json.dumps(document, indent=1) + "\n")
    summarise(rows, list(peers), launch_us)


if __name__ == "__main__":
    main()
