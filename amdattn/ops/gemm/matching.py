"""Finds the kernels that support a product."""

from __future__ import annotations

from collections.abc import Sequence

from amdattn.device.manifest import KernelSpec
from amdattn.op.support import Mismatch, Span
from amdattn.ops.gemm import grids
from amdattn.ops.gemm.problem import ALIGNED, BLOCK_FACTORS, LEAST_EPS, WORD_BYTES, GemmProblem
from amdattn.scalars import FLOAT32_MAX


def most_products(kernel: KernelSpec, name: str) -> int:
    """The largest batch, or number of groups, that a kernel takes."""
    most: int = kernel.accepts["max_products"]
    return most if name == "batch" or grids.has_windows(kernel) else 0


def mismatches(kernel: KernelSpec, problem: GemmProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []

    def require(argument: str, value: object, allowed: Sequence[object]) -> None:
        if value not in allowed:
            found.append(Mismatch(argument, value, tuple(allowed)))

    require("dtype", problem.dtype, (kernel.dtype,))
    if problem.is_8_bit:
        require("b_dtype", problem.b_dtype, kernel.accepts["b_dtype"])
    for name in ("scale_a", "scale_b"):
        require(name, getattr(problem, name), kernel.accepts["scales"])
    norms_rows = "norms_rows" in kernel.accepts
    if norms_rows != (problem.rms_eps is not None):
        taken = Span(LEAST_EPS, FLOAT32_MAX) if norms_rows else None
        found.append(Mismatch("rms_eps", problem.rms_eps, (taken,)))
    require("layout", problem.layout, (kernel.accepts["layout"],))
    require("out_dtype", problem.out_dtype, kernel.accepts["out_dtype"])
    require("activation", problem.activation, kernel.accepts["activation"])
    limits = {"m": problem.m, "n": problem.n, "k": problem.k, "splits": problem.split_k}
    for name, value in limits.items():
        limit = kernel.accepts[f"max_{name}"]
        if name == "n":  # of rows of b
            limit //= 1 + problem.has_factors
        if value > limit:
            least = 0 if name == "splits" else 1
            argument = "split_k" if name == "splits" else name
            found.append(Mismatch(argument, value, (Span(least, limit),)))
    if problem.are_several and problem.split_k > 1:
        found.append(Mismatch("split_k", problem.split_k, (Span(0, 1),)))
    for name in ("batch", "groups"):
        limit = most_products(kernel, name)
        if getattr(problem, name) > limit:
            found.append(Mismatch(name, getattr(problem, name), (Span(0, limit),)))
    if not grids.has_windows(kernel) and problem.batch:
        tile_m: int = kernel.tile["m"]
        needed, most = problem.batch * -(-problem.m // tile_m), kernel.accepts["max_m"] // tile_m
        if needed > most:
            found.append(Mismatch("batch times tiles of m", needed, (Span(1, most),)))
    if grids.has_windows(kernel):
        columns = grids.most_columns(problem, kernel)
        most = kernel.accepts["max_workgroups"]
        needed = grids.num_tiles(problem, kernel, columns)
        if needed > most:
            found.append(Mismatch("tiles of m and n", needed, (Span(1, most),)))
    for name in "mnk":
        multiple = kernel.accepts[f"{name}_multiple"]
        if limits[name] % multiple:
            found.append(Mismatch(name, limits[name], (f"multiples of {multiple}",)))
    if problem.has_blocks and problem.has_factors and problem.n % BLOCK_FACTORS:
        allowed = (f"multiples of {BLOCK_FACTORS}",)
        found.append(Mismatch("n", problem.n, allowed, "of factors with scales of blocks"))
    if not problem.aligned and kernel.accepts["pointer_align_bytes"] > WORD_BYTES:
        found.append(Mismatch("aligned", False, (True,), ALIGNED))
    return found
