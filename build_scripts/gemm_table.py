"""Tune the decode GEMM on the performance model: writes hsaco/gemm_nt.json, which plans follow.

    python -m build_scripts.gemm_table [--output FILE] [--products N,K ...] [--rows M ...]
                                       [--candidates COUNT]

Of each product of bfloat16 the choices with the least estimated time are modelled, on the device of
$AMDATTN_DEVICE. Its entries in the file are written anew when all of them are, those of other chips
stay. A user's own table comes before it; for what neither has, the estimate decides.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from amdattn import tuning
from amdattn.arch.props import DeviceProps
from amdattn.cli.output import progress_bar
from amdattn.device import runtime
from amdattn.ops import registry
from amdattn.ops.gemm import table as gemm_table
from amdattn.ops.gemm.problem import GemmProblem

# n and k of the products of docs/studies/gemm-design.md, then of layers of Llama 3, Qwen3 and
# DeepSeek V3. Larger ones wait for HBM alone, and any choice is near the best.
PRODUCTS = (
    *((2560, 7168), (2880, 7168), (5120, 7168), (7168, 7168), (2112, 7168)),
    *((128, 2880), (640, 2880), (5120, 2880), (2880, 2048), (2880, 4096)),
    *((6144, 4096), (4096, 4096), (4096, 14336), (8192, 3584), (5120, 2048), (128, 2048)),
    *((10240, 5120), (7168, 2048)),
)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
# Those that kernels for few rows and for many compete for, of layers of Llama 3.
PRODUCTS_BETWEEN = ((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096))
ROWS_BETWEEN = (24, 48, 96, 192, 256, 384, 512)
CANDIDATES = 12


def product(text: str) -> tuple[int, int]:
    """N and k of a product, from N,K."""
    n, k = map(int, text.split(","))
    return n, k


def of_others(path: Path, props: DeviceProps) -> list[tuple[gemm_table.Key, gemm_table.Tuned]]:
    """Entries of a file that are for other chips."""
    chip = gemm_table.Key.of(GemmProblem(1, 1, 1), props).chip
    return [(key, tuned) for key, tuned in gemm_table.load(path).items() if key.chip != chip]


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune all, and write the table anew."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=gemm_table.shipped_path(), metavar="FILE")
    parser.add_argument("--products", type=product, nargs="+", metavar="N,K")
    parser.add_argument("--rows", type=int, nargs="+", metavar="M")
    parser.add_argument(
        "--candidates", type=int, default=CANDIDATES, help="model so many; 0: all choices"
    )
    options = parser.parse_args(arguments)
    sets = [(options.products or PRODUCTS, options.rows or ROWS)]
    if not options.products and not options.rows:
        sets.append((PRODUCTS_BETWEEN, ROWS_BETWEEN))
    problems = [GemmProblem(m, n, k) for some, rows in sets for n, k in some for m in rows]
    found = []
    props, operation = runtime.device_props(), registry.operation("gemm")
    with progress_bar() as progress:
        task = progress.add_task("products", total=len(problems))
        for problem in problems:
            choices = tuning.choices_of(operation, problem)
            nearest = sorted(choices.items, key=operation.cost)[: options.candidates or None]
            timed = tuning.tune(operation, problem, choices, nearest)
            fastest = timed.timed[0]
            best = gemm_table.Tuned.of(fastest.choice, fastest.us, timed.how)
            found.append((gemm_table.Key.of(problem, props), best))
            progress.console.print(f"{problem.m}, {problem.n}, {problem.k}: {best}", soft_wrap=True)
            progress.advance(task)
    gemm_table.store(options.output, [*of_others(options.output, props), *found], keep=False)


if __name__ == "__main__":
    main()
