"""Matrix products for `amdattn check`: each shipped kernel on random inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from amdattn.arrays.buffers import empty
from amdattn.arrays.interchange import asarray
from amdattn.checking.session import Check
from amdattn.device import manifest, runtime
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.planning import plan_gemm
from amdattn.ops.gemm.problem import GemmProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Gemm:
    """``a @ b^T`` on random inputs, with a kernel of the manifest.

    Parameters
    ----------
    options : tuple of (str, object)
        Further arguments of `GemmProblem`.
    """

    kernel: str
    m: int
    n: int
    k: int
    seed: int = 0
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """One line for people."""
        options = "".join(f" {name}={value}" for name, value in self.options)
        return f"gemm {self.kernel} {self.m}x{self.n}x{self.k}{options}"

    def plan(self) -> GemmPlan:
        """The plan on the bound device."""
        (row,) = (row for row in manifest.kernels() if row.name == self.kernel)
        problem = GemmProblem(self.m, self.n, self.k, row.dtype, **dict(self.options))
        return GemmPlan.of(plan_gemm(problem, runtime.device_props(), [row]))

    def run(self, check: Check) -> Mapping[str, NDArray[Any]]:
        """Launch once; what the operation reads may not be written, counters end as 0."""
        plan = self.plan()
        problem = plan.problem
        rng = np.random.default_rng(self.seed)
        element = as_dtype(problem.dtype).numpy()
        operands = {
            name: asarray(values(rng, shape, problem).astype(element))
            for name, shape in problem.input_shapes.items()
        }
        check.declare(read_only=operands)
        out = empty((self.m, self.n), problem.out_dtype)
        check.declare(others={"out": out})
        workspace = None
        if plan.workspace.regions:
            workspace = plan.new_workspace()
            zeros = plan.workspace["counters"].nbytes if problem.deterministic else None
            check.declare(zero_at_end={"counters": workspace[:zeros]})
        plan.run(out=out, workspace=workspace, **operands)
        return {"out": out.numpy()}


def values(
    rng: np.random.Generator, shape: tuple[int, ...], problem: GemmProblem
) -> NDArray[np.float32]:
    """Random ones; where parts are added in any order, of which every order has the same sum."""
    if problem.deterministic:
        return rng.standard_normal(shape, np.float32)
    return rng.integers(-4, 5, shape).astype(np.float32)


# Around tiles and around lines of k, with and without parts; of every kernel.
_CASES: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
    (1, 1, 8, {}),
    (19, 70, 200, {"bias": True, "out_dtype": "float32"}),
    (66, 33, 1096, {"alpha": -0.5}),
    (35, 50, 840, {"split_k": 3, "bias": True}),
    (35, 50, 840, {"split_k": 3, "deterministic": False, "bias": True}),
    (18, 21, 328, {"activation": "silu", "bias": True}),
    (18, 21, 328, {"activation": "silu_and_mul", "bias": True}),
)


def of_kernel(row: KernelSpec, seed: int) -> list[Gemm]:
    """One kernel at sizes that fit no tile."""
    cases = [
        Gemm(row.name, m, n, k, seed, tuple(options.items()))
        for m, n, k, options in _CASES
        if options.get("activation") in row.accepts["activation"]
    ]
    if row.accepts["k_multiple"] == 1:
        cases.append(Gemm(row.name, 5, 18, 131, seed, (("split_k", 2),)))
    return cases
