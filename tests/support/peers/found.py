"""Reproduces the defects of docs/studies/found.md on the virtual device.

    python -m tests.support.peers.found AITER [NAME ...] [--flydsl DIR]

AITER is a checkout of https://github.com/ROCm/aiter (git clone; the objects are in hsa/gfx942), DIR
what `benchmarks/flydsl_hgemm.py AITER DIR 128,2880 --tiles-m 1` compiled. Each defect is shown by
its findings at the documented instructions and by what it does to the result; exit code 1 if one of
them is not as documented.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import amdattn
from amdattn import virtual
from amdattn.checking.findings import Finding
from amdattn.errors import HipError
from tests.support.peers.found_defects import DEFECTS, FLYDSL, Defect
from tests.support.peers.found_kernels import Problem, fp8_attention
from tests.support.peers.peer_device import Buffers

Claim = tuple[bool, str]  # whether it holds, and what was seen


@contextlib.contextmanager
def options(**chosen: int) -> Iterator[None]:
    """Options of the virtual device inside the block."""
    defaults = {"seed": 0, "quantum": 8, "resident_workgroups": 0}
    for key, value in chosen.items():
        virtual.set_option(key, value)
    try:
        yield
    finally:
        for key in chosen:
            virtual.set_option(key, defaults[key])


def checked(problem: Problem, **arguments: bool) -> tuple[list[Finding], HipError | None]:
    """Errors and counted findings of one launch."""
    with amdattn.virtual.check(raise_on=None, **arguments) as found:
        try:
            problem.launch()
        except HipError as error:
            return [*found.errors, *found.counted], error
    return [*found.errors, *found.counted], None


def findings(defect: Defect, path: Path) -> Iterator[Claim]:
    """The documented findings. Loads come early: no address is wild before."""
    with Buffers() as buffers:
        seen, _ = checked(defect.prepare(path, buffers), late_loads=False)
    by_place = {(f.kind, f.pc): f for f in seen}
    for pc in defect.places:
        finding = by_place.get((defect.kind, pc))
        text = f"{finding.text} <- {finding.producer}" if finding else "no such finding"
        yield finding is not None, f"{defect.kind} at {pc:#x}: {text}"


def late_data(defect: Defect, path: Path) -> Iterator[Claim]:
    """Wrong with loads that take as long as the waits allow, right with loads that come at once."""
    with Buffers() as buffers:
        problem = defect.prepare(path, buffers)
        for late in (True, False):
            _, error = checked(problem, late_loads=late)
            wrong = 1.0 if error else problem.wrong(defect.tolerance)
            loads = "late" if late else "early"
            ended = f", {str(error).splitlines()[0]}" if error else ""
            yield (wrong > 0) == late, f"{loads} loads: {wrong:.2%} of the result wrong{ended}"


def schedules(defect: Defect, path: Path) -> Iterator[Claim]:
    """Another result under some orders of waves; the first one is right."""
    with Buffers() as buffers:
        problem = defect.prepare(path, buffers)
        problem.launch()
        first = problem.result()
        yield problem.wrong(defect.tolerance) == 0, "in the device's own order: right"
        differing = []
        for seed in range(1, 151):
            with options(seed=seed):
                problem.launch()
            if count := int((problem.result() != first).sum()):
                differing.append((count, seed))
        count, seed = max(differing, default=(0, 0))
        yield (
            bool(differing),
            f"{len(differing)} of 150 seeds give another result; most with seed {seed}: "
            f"{count} of {first.size} elements",
        )


def late_stores(defect: Defect, path: Path) -> Iterator[Claim]:
    """Wrong under some schedules in which stores with sc1 take as long as the waits allow."""
    for late in (True, False):
        wrong = []
        for seed in range(64):
            turns = (8, 1, 16, 3, 2)[seed % 5]
            with Buffers() as buffers, options(seed=seed, quantum=turns):
                problem = defect.prepare(path, buffers)
                checked(problem, late_stores=late)
                if part := problem.wrong(0.1):
                    wrong.append((part, seed))
        part, seed = max(wrong, default=(0.0, 0))
        stores = "late" if late else "early"
        most = f", most with seed {seed}: {part:.1%} of the elements" if wrong else ""
        yield (
            bool(wrong) == late,
            f"{stores} stores: wrong under {len(wrong)} of 64 schedules{most}",
        )


def second_tile(_: Defect, path: Path) -> Iterator[Claim]:
    """Rows of the first and of the second tile, with a factor of q of 1 and of 2."""
    for factor, is_wrong in ((1.0, False), (2.0, True)):
        with Buffers() as buffers:
            problem = fp8_attention(path, buffers, factor)
            problem.launch()
            error = np.square(problem.result() - problem.expected).mean(axis=(1, 2))
            error = np.sqrt(error / np.square(problem.expected).mean())
        first, second = error[:256].mean(), error[256:].mean()
        yield (
            first < 0.05 and (second > 0.5 if is_wrong else second < 0.05),
            f"q_descale {factor:g}: relative rms error of rows 0 to 255 {first:.3f}, "
            f"of rows 256 to 511 {second:.3f}",
        )


def right(defect: Defect, path: Path) -> Iterator[Claim]:
    """The result is right under every schedule that was tried."""
    for seed in range(16):
        with Buffers() as buffers, options(seed=seed):
            problem = defect.prepare(path, buffers)
            problem.launch()
            if problem.wrong(defect.tolerance):
                yield False, f"seed {seed}: wrong"
    yield True, "right under 16 schedules"


SHOWS: dict[str, Callable[[Defect, Path], Iterator[Claim]]] = {
    f.__name__: f for f in (late_data, schedules, late_stores, second_tile, right)
}


def reproduce(defect: Defect, path: Path) -> bool:
    """Print every claim, and whether it holds."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    other = "" if digest == defect.sha256 else f", another object than {defect.sha256}"
    print(f"{defect.name}: {defect.object} (sha256 {digest}{other})")
    holds = True
    for claims in (findings, SHOWS[defect.shows]):
        for claim, text in claims(defect, path):
            print(f"  {'as documented' if claim else 'NOT AS DOCUMENTED'}: {text}")
            holds &= claim
    return holds


def main() -> int:
    """Read the arguments, reproduce, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("aiter", type=Path)
    parser.add_argument("names", nargs="*", help=", ".join(d.name for d in (*DEFECTS, FLYDSL)))
    parser.add_argument("--flydsl", type=Path)
    given = parser.parse_args()
    objects = {d: given.aiter / "hsa" / "gfx942" / d.object for d in DEFECTS}
    if given.flydsl:
        objects[FLYDSL] = given.flydsl / FLYDSL.object
    unknown = set(given.names) - {defect.name for defect in objects}
    if unknown:
        parser.error(f"no defects {sorted(unknown)}; have {[d.name for d in objects]}")
    chosen = {d: p for d, p in objects.items() if d.name in given.names or not given.names}
    return 0 if all([reproduce(d, p) for d, p in chosen.items()]) else 1


if __name__ == "__main__":
    sys.exit(main())
