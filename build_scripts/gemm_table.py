"""Tune the decode GEMM on the performance model: writes hsaco/gemm_nt.json, which plans follow.

    python -m build_scripts.gemm_table

Of each product of bfloat16 the choices with the least estimated time are modelled. A user's own
table comes before this one; for what neither has, the estimate decides.
"""

from __future__ import annotations

from amdattn import runtime, tuning
from amdattn.cli.output import progress_bar
from amdattn.gemm_problem import GemmProblem
from amdattn.plan import gemm_table

# n and k of the products of docs/gemm.md, then of layers of Llama 3, Qwen3 and DeepSeek V3. Larger
# ones wait for HBM alone, and any choice is near the best.
PRODUCTS = (
    *((2560, 7168), (2880, 7168), (5120, 7168), (7168, 7168), (2112, 7168)),
    *((128, 2880), (640, 2880), (5120, 2880), (2880, 2048), (2880, 4096)),
    *((6144, 4096), (4096, 4096), (4096, 14336), (8192, 3584), (5120, 2048), (128, 2048)),
    *((10240, 5120), (7168, 2048)),
)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
CANDIDATES = 6


def main() -> None:
    """Tune all, and write the table anew."""
    path = gemm_table.shipped_path()
    path.unlink(missing_ok=True)
    problems = [GemmProblem(m, n, k) for n, k in PRODUCTS for m in ROWS]
    found = []
    props = runtime.device_props()
    with progress_bar() as progress:
        task = progress.add_task("products", total=len(problems))
        for problem in problems:
            tuned = tuning.tune(problem, tuning.choices_of(problem, candidates=CANDIDATES))
            found.append((gemm_table.Key.of(problem, props), tuned.best))
            progress.advance(task)
    gemm_table.store(path, found)


if __name__ == "__main__":
    main()
