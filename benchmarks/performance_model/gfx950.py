"""Main loops of others' attention kernels for MI355X, modelled and as their authors measured them.

    AMDATTN_DEVICE=virtual:gfx950 python -m benchmarks.performance_model.gfx950 DIRECTORY

DIRECTORY has the code objects that benchmarks/peers/compiled_gfx950.py describes: two of Gluon
of one NAME_hHkK_nN, whose N differ, and FlyDSL's. An iteration is 256 rows of Q and twice 64 keys:
64 MFMAs of 32 clk a wave, two waves a SIMD, 4096 clk. One workgroup alone on its CU runs two
lengths over normal random numbers; their difference is that of so many iterations. Nothing is
fitted. The rate of LDS reads is open (docs/generated/readings.md): both readings are printed.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from amdattn import virtual
from amdattn.device.profiling import LaunchProfile
from benchmarks.readings import LDS
from tests.support.peers.gfx950_attention import Compiled, Forward, compiled
from tests.support.peers.peer_device import normal

KEYS, WAVES, MATRIX_CLK = 128, 8, 4096
LENGTHS = (2112, 4160)  # of kernels that take them as arguments
# What stands at the instructions of a class, per wave and iteration; the order is that of tests.
CLASSES = {
    "barrier": r"s_barrier",
    "wait": r"s_waitcnt",
    "nop": r"s_nop",
    "ds_read": r"ds_",
    "vmem": r"(buffer|global|scratch)_",
    "mfma": r"v_mfma",
    "valu": r"v_",
    "scalar": r"s_",
}
# ROCm/gfx950-gluon-tutorials, kernels/attention/note.md and README.md: clk of an iteration.
PUBLISHED = {
    "v4 scalar": 4298,
    "v4 peephole": 4369,
    "v3 tuned": 4752,
    "v3 baseline": 6282,
    "FlyDSL lazy": 4747,
    "FlyDSL eager": 6694,
}


@dataclass(frozen=True)
class Loop:
    """One kernel's iteration, in clk; stalls and issues are those of a wave."""

    clk: float
    stalls: dict[str, float]
    issued: dict[str, float]
    reasons: dict[str, float]


def kind_of(text: str) -> str:
    """The class of an instruction."""
    return next(name for name, start in CLASSES.items() if re.match(start, text))


def one_workgroup(forward: Forward, rows: int, lds: str) -> LaunchProfile:
    """The first workgroup of head 0, alone on its CU."""
    what = forward.what
    rng = np.random.default_rng(1)
    q = normal(rng, rows, what.hq, what.d)
    k, v = normal(rng, 2, rows, what.hk, what.d)
    with virtual.profile(reading=LDS[lds]) as profile:
        forward(q, k, v, tiles=1)
    return profile.launches[0]


def loop(profiles: tuple[LaunchProfile, LaunchProfile], more_keys: int) -> Loop:
    """From two lengths."""
    iterations = more_keys / KEYS
    stalls: Counter[str] = Counter()
    issued: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for profile, sign in zip(profiles, (-1, 1), strict=True):
        for site in profile.sites:
            kind = kind_of(site.text)
            issued[kind] += sign * site.issued
            for reason, clk in site.stalls.items():
                stalls[kind] += sign * clk
                reasons[reason] += sign * clk
    times = [profile.times[0].end - profile.times[0].start for profile in profiles]

    def of_a_wave(counts: Counter[str]) -> dict[str, float]:
        return {name: count / WAVES / iterations for name, count in counts.items()}

    return Loop(
        (times[1] - times[0]) / iterations,
        *map(of_a_wave, (stalls, issued, reasons)),
    )


def loops(directory: Path, lds: str) -> Iterator[tuple[str, Loop]]:
    """Every kernel of a directory of which there are two lengths."""
    of_lengths: dict[str, list[Compiled]] = defaultdict(list)

    def both(*runs: tuple[Compiled, int]) -> Loop:
        short, long = (one_workgroup(Forward(what), rows, lds) for what, rows in runs)
        return loop((short, long), runs[1][1] - runs[0][1])

    for what in compiled(directory):
        if what.kind == "flydsl" and not what.causal:
            yield what.name, both(*((what, rows) for rows in LENGTHS))
        elif what.kind == "gluon":
            of_lengths[re.sub(r"_n\d+$", "", what.name)].append(what)
    for name, objects in of_lengths.items():
        if len(objects) == len(LENGTHS):
            yield name, both(*((what, what.n) for what in sorted(objects, key=lambda x: x.n)))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    print("published:", ", ".join(f"{name} {clk}" for name, clk in PUBLISHED.items()))
    for lds in LDS:
        for name, found in loops(given.directory, lds):
            use = MATRIX_CLK / found.clk
            print(f"{name}, LDS {lds}: {found.clk:.0f} clk, {use:.1%} of them matrix")
            for title, counts in (
                ("stall clk in front of", found.stalls),
                ("issued", found.issued),
                ("stall clk by reason", found.reasons),
            ):
                listed = (f"{kind} {count:.0f}" for kind, count in sorted(counts.items()) if count)
                print(f"  {title}:", ", ".join(listed), flush=True)


if __name__ == "__main__":
    main()
