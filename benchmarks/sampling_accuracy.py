"""How well sampled launches agree with simulating every workgroup.

    python -m benchmarks.sampling_accuracy [--aiter DIR] [--moonmath DIR] [--triton]

prints the table of docs/studies/sampled-launches.md as Markdown; takes some minutes on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from amdattn.bench.kernels import Functions
from amdattn.bench.operation import run_operation
from amdattn.bench.peer import Peer
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from amdattn.ops.attention.problem import ROUND_MODES
from benchmarks.peers.aiter import Aiter
from benchmarks.peers.moonmath import MoonMath
from benchmarks.peers.triton_peer import Triton

# Each with several rounds and a tail, or fewer workgroups than CUs, and half a minute in full.
PLAIN = (
    Shape(1, 8, 8, 16384, 2048, 128),  # 1.1 rounds of ours, 1.7 of kernels with 256 rows of Q
    Shape(2, 24, 24, 1536, 2560, 128),
    Shape(1, 8, 2, 8192, 2304, 128, layout="bhsd"),
)
CAUSAL = (
    Shape(1, 8, 2, 5120, 5120, 128, causal=True),
    Shape(1, 32, 8, 3584, 3584, 128, causal=True),
)


@dataclass(frozen=True)
class Row:
    """One launch, both ways; `seconds` are of this CPU."""

    kernel: str
    shape: Shape
    workgroups: int
    sampled_cycles: float
    full_cycles: float
    sampled_seconds: float
    full_seconds: float

    @property
    def error(self) -> float:
        """Of the sampled cycles."""
        return self.sampled_cycles / self.full_cycles - 1


def kernels(aiter: Path | None, moonmath: Path | None, triton: bool) -> list[Peer]:
    """Ours, and what else there is."""
    found: list[Peer] = [Shipped("rtne")]
    if aiter is not None:
        found += [Aiter(aiter, mode) for mode in ROUND_MODES]
    if moonmath is not None:
        found += [MoonMath(moonmath, mode) for mode in ROUND_MODES]
    if triton:
        found.append(Triton())
    return found


def rows(of: Sequence[Peer], shapes: Sequence[Shape]) -> Iterator[Row]:
    """Every kernel at every shape that it solves."""
    functions = Functions()
    for kernel in of:
        for shape in shapes:
            if kernel.refusal(shape):
                continue
            cycles, seconds = [], []
            for method in ("sampled", "full"):
                start = time.process_time()
                record = run_operation(kernel, shape, functions, method=method).record
                cycles.append(record.cycles or 0)
                seconds.append(time.process_time() - start)
            if not all(cycles):  # one that cannot be sampled
                continue
            name = f"{kernel.peer} {kernel.round_mode}"
            yield Row(name, shape, record.workgroups, *cycles, *seconds)


def markdown(found: Sequence[Row]) -> str:
    """The table."""
    lines = [
        "| kernel | shape | workgroups | full, clk | sampled, clk | error | s full | s sampled |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in found:
        lines.append(
            f"| {row.kernel} | {row.shape} | {row.workgroups} | {row.full_cycles:,.0f} | "
            f"{row.sampled_cycles:,.0f} | {row.error:+.2%} | {row.full_seconds:.0f} | "
            f"{row.sampled_seconds:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter")
    parser.add_argument("--moonmath", type=Path, help="MoonMath's code objects")
    parser.add_argument("--triton", action="store_true", help="also compile and run Triton's")
    options = parser.parse_args()
    of = kernels(options.aiter, options.moonmath, options.triton)
    print(markdown(list(rows(of, PLAIN + CAUSAL))), end="")


if __name__ == "__main__":
    main()
