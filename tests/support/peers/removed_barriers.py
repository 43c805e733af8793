"""HipKittens' CDNA4 GEMM with each of its barriers removed in turn: which does checked mode report?

    AMDATTN_DEVICE=virtual:gfx950 python -m tests.support.peers.removed_barriers OBJECT

OBJECT is the code object of `kernels/gemm/bf16fp32/256_256_64_32_with16x32.cpp` (or of it in
`mi350x/`, where K is 8192) of HazyResearch/HipKittens, compiled for gfx950. One workgroup computes
its 256 x 256 elements of C = A @ B^T. The kernel as it is reads LDS before a wait has covered the
load (docs/studies/found.md); with `vmcnt(4)` for its every `vmcnt(6)` it does not. From that one
each `s_barrier` is removed, an `s_nop 0` takes its place, and it runs in checked mode under several
schedules. Printed is for each in how many of them there was a finding, and in how many the result
was wrong. Required wait states do not count. Exit code 1 if a result is wrong without a finding, or
if the mended kernel has one.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

from amdattn import virtual
from amdattn.checking.findings import Finding
from amdattn.checking.schedules import Schedule, schedules
from amdattn.device import runtime
from amdattn.errors import HipError
from tests.support.isa.code_objects import instructions
from tests.support.isa.disassembler import Disassembler
from tests.support.peers.peer_device import Buffers, Kernel, normal, read
from tests.support.vdev_library import open_library

TILE = 256  # of a workgroup
# K: of the kernel that has it compiled in. Rows of other lengths, which the newer kernel takes, get
# a descriptor for swizzled access to elements, though the kernel has no index to swizzle by.
DEPTH = 8192
KERNELS = (b"_Z8micro_tk13micro_globalsiii", b"_Z8micro_tk13micro_globals")
LANES, LDS_BYTES = 512, 160000
S_NOP = 0xBF800000
# Of the mended kernel: the wait before the barrier behind which all that is read has landed.
_WAIT, _LONGER_WAIT = "s_waitcnt vmcnt(6)", 0xBF8C0F74
_WAIT_STATES = "hazard"
# Sums in another order, rounded or truncated to bfloat16.
_TOLERANCE = 2**-6


@dataclass(frozen=True)
class Run:
    """One launch under one schedule."""

    schedule: Schedule
    findings: list[Finding]
    wrong: int


@dataclass
class Removal:
    """One barrier, and what came of its removal.

    Attributes
    ----------
    name : str
        Where it was, or what else ran.
    """

    name: str
    runs: list[Run] = field(default_factory=list)

    @property
    def reported(self) -> int:
        """Schedules with findings."""
        return sum(bool(run.findings) for run in self.runs)

    @property
    def wrong(self) -> int:
        """Schedules with a wrong result."""
        return sum(run.wrong > 0 for run in self.runs)

    @property
    def missed(self) -> bool:
        """A wrong result that nothing explains."""
        return any(run.wrong and not run.findings for run in self.runs)

    def __str__(self) -> str:
        first = next((run.findings[0] for run in self.runs if run.findings), None)
        what = f"{first.kind} at {first.pc:#x}: {first.text}" if first else ""
        count = len(self.runs)
        return (
            f"{self.name:14} reported {self.reported}/{count}, wrong {self.wrong}/{count}  {what}"
        )


class Gemm:
    """The kernel's problem, on the device."""

    def __init__(self, image: bytes, buffers: Buffers) -> None:
        found = [symbol for symbol in KERNELS if symbol + b"\0" in image]
        if not found:
            raise ValueError(f"the code object has none of the kernels {KERNELS}")
        self.symbol = found[0].decode()
        self._takes_sizes = found[0] == KERNELS[0]
        rng = np.random.default_rng(7)
        a, b = normal(rng, TILE, DEPTH), normal(rng, TILE, DEPTH)
        self._at = buffers.put(a), buffers.put(b)
        self._c = buffers.unwritten((TILE, TILE), ml_dtypes.bfloat16)
        self._nothing = np.full((TILE, TILE), 0xFFFF, np.uint16)
        left, right = a.astype(np.float64), b.astype(np.float64)
        self._expected = left @ right.T
        # Of the root of the sum of squares: what a sum of so many roundings may err by.
        self._scale = np.sqrt(np.square(left).sum(1)[:, None] * np.square(right).sum(1)[None])

    def kernarg(self) -> bytes:
        """Three tensors of four dimensions, each with an empty dictionary; a stream; M, N and K."""
        shapes = ((TILE, DEPTH), (TILE, DEPTH), (TILE, TILE))
        tensors = zip((*self._at, self._c), shapes, strict=True)
        block = b"".join(struct.pack("<5Q8x", at, 1, 1, *shape) for at, shape in tensors) + bytes(8)
        if self._takes_sizes:
            sizes = struct.pack("<3i", TILE, TILE, DEPTH)
            block += sizes + bytes(4) + sizes
        return block

    def launch(self, kernel: Kernel) -> None:
        """One workgroup, into elements that nothing has written."""
        runtime.get().upload(self._c, self._nothing.ctypes.data, self._nothing.nbytes)
        kernel.launch((1, 1, 1), LANES, self.kernarg(), LDS_BYTES)

    def wrong(self) -> int:
        """Elements of the result that are not what they should be."""
        result = read(self._c, (TILE, TILE), ml_dtypes.bfloat16).astype(np.float64)
        bound = _TOLERANCE * np.abs(self._expected) + 2**-16 * self._scale
        return int((~(np.abs(result - self._expected) <= bound)).sum())


def places(image: bytes, text: str) -> list[tuple[int, int]]:
    """Offset in the code, and in the file, of each instruction of a text."""
    disassembler = Disassembler(open_library(), "gfx950")
    found = []
    for at, decoded, in_file in instructions(disassembler, image):
        if not decoded.size:
            raise ValueError(f".text+{at:#x}: no instruction of gfx950")
        if decoded.text == text:
            found.append((at, in_file))
    if not found:
        raise ValueError(f"the code object has no {text}")
    return found


def replaced(image: bytes, in_file: int, word: int) -> bytes:
    """The code object with another instruction of four bytes at one place."""
    return image[:in_file] + struct.pack("<I", word) + image[in_file + 4 :]


def mended(image: bytes) -> bytes:
    """The kernel with the longer wait."""
    for _, in_file in places(image, _WAIT):
        image = replaced(image, in_file, _LONGER_WAIT)
    return image


def run(image: bytes, gemm: Gemm, plan: Sequence[Schedule]) -> Iterator[Run]:
    """The kernel of an image under every schedule."""
    kernel = Kernel(image, gemm.symbol)
    exports = runtime.get().virtual_exports()
    for schedule in plan:
        restore = exports.set_options(seed=schedule.seed, quantum=schedule.quantum)
        try:
            with virtual.check(raise_on=None, late_loads=schedule.late_loads) as found:
                try:
                    gemm.launch(kernel)
                    wrong = gemm.wrong()
                except HipError:
                    wrong = TILE * TILE
        finally:
            exports.set_options(**restore)
        findings = [f for f in found.errors if f.kind != _WAIT_STATES]
        yield Run(schedule, findings, wrong)


def removals(path: Path, count: int, chosen: Sequence[int] = ()) -> Iterator[Removal]:
    """The kernel as it is, mended, then without each of its barriers, or those `chosen`."""
    original = path.read_bytes()
    image = mended(original)
    plan = schedules(count, residency=0)
    with Buffers() as buffers:
        gemm = Gemm(original, buffers)
        yield Removal("as it is", list(run(original, gemm, plan)))
        yield Removal("mended", list(run(image, gemm, plan)))
        for offset, in_file in places(image, "s_barrier"):
            if not chosen or offset in chosen:
                without = replaced(image, in_file, S_NOP)
                yield Removal(f".text+{offset:#x}", list(run(without, gemm, plan)))


def main() -> int:
    """Read the arguments, run, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("object", type=Path)
    parser.add_argument("--schedules", type=int, default=4, metavar="N")
    parser.add_argument("--at", type=lambda x: int(x, 0), nargs="*", default=[], metavar="OFFSET")
    given = parser.parse_args()
    done = []
    for removal in removals(given.object, given.schedules, given.at):
        print(removal, flush=True)
        done.append(removal)
    _, fixed, *others = done
    total = sum(bool(r.reported) for r in others)
    quiet = [r for r in others if not r.reported and not r.wrong]
    print(f"{len(others)} removals: {total} reported, {len(quiet)} neither reported nor wrong")
    return int(any(r.missed for r in done) or fixed.reported > 0 or fixed.wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
