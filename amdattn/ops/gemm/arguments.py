"""The arguments of a product's launch."""

from __future__ import annotations

from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Address, Argument, PerRun, Stride
from amdattn.ops.gemm.grids import split_steps
from amdattn.ops.gemm.problem import ADDENDS, FACTORS, GemmProblem

# Values of the argument out_type.
OUT_TYPES = {"float32": 0, "bfloat16": 1, "float16": 2}
# Values of the argument activation, without FACTORS.
ACTIVATIONS = {None: 0, "silu": 1, "gelu_tanh": 2, "gelu": 3}


def arguments(
    problem: GemmProblem, kernel: KernelSpec, splits: int, columns: int, is_split: bool
) -> dict[str, Argument]:
    """The value of each field of the kernel's struct."""
    return {
        "a": Address("a"),
        "b": Address("b"),
        "bias": Address("bias") if problem.bias else 0,
        "a_stride": Stride("a", "row"),
        "b_stride": Stride("b", "row"),
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "split_steps": split_steps(problem, kernel, splits),
        "num_splits": splits,
        "tile_n": columns,
        "up_offset": problem.n if problem.has_factors else 0,
        "out": Address("out"),
        "out_stride": Stride("out", "row"),
        "alpha": problem.alpha,
        "out_type": OUT_TYPES[problem.out_dtype],
        "activation": ACTIVATIONS[problem.activation and problem.activation.removesuffix(FACTORS)],
        "accumulates": int(is_split and not problem.deterministic),
        "partials": Address("partials") if is_split else 0,
        "counters": Address("counters") if is_split else 0,
        "generation": PerRun() if is_split else 0,
        "scale_a": Address("scale_a") if problem.scale_a else 0,
        "scale_b": Address("scale_b") if problem.scale_b else 0,
        **{f"{name}_step": _step(problem, name) for name in ("scale_a", "scale_b")},
        **_addend(problem),
        **_products(problem),
        "inverse_k": 1 / problem.k,
        "rms_eps": problem.rms_eps or 0.0,
    }


def _addend(problem: GemmProblem) -> dict[str, Argument]:
    """Fields of the array that is added to results, except those in `_products`."""
    if problem.adds is None:
        return {"addend": 0, "addend_stride": 0, "adds": 0, "beta": 0.0, "addend_batch": 0}
    return {
        "addend": Address(problem.adds),
        "addend_stride": Stride(problem.adds, "row"),
        "adds": 1 + ADDENDS.index(problem.adds),
        "beta": problem.beta,
        "addend_batch": Stride(problem.adds, "batch") if problem.of_results else 0,
    }


def _products(problem: GemmProblem) -> dict[str, Argument]:
    """Distances from one product to the next; 0 if groups follow each other."""
    has_rows, has_columns = bool(problem.of_rows), bool(problem.of_columns)
    has_results = bool(problem.of_results)
    return {
        "batches": problem.products,
        "group_rows": Address("group_sizes") if problem.groups else 0,
        "a_batch": Stride("a", "batch") if has_rows else 0,
        "b_batch": Stride("b", "batch") if has_columns else 0,
        "out_batch": Stride("out", "batch") if has_results else 0,
        "bias_batch": Stride("bias", "batch") if has_columns and problem.bias else 0,
        "scale_a_batch": _scale_batch(problem, "scale_a", problem.m) if has_rows else 0,
        "scale_b_batch": _scale_batch(problem, "scale_b", problem.b_rows) if has_columns else 0,
    }


def _scale_batch(problem: GemmProblem, scale: str, rows: int) -> Argument:
    """The distance from the scales of a product to those of the next one."""
    if problem.scales_have_rows:
        return Stride(scale, "batch")
    return rows if getattr(problem, scale) == "row" else 0


def _step(problem: GemmProblem, scale: str) -> Argument:
    """The distance from the scale of a row, or from the scales of a row of blocks, to the next."""
    if problem.scales_have_rows:
        return Stride(scale, "row")
    return int(getattr(problem, scale) == "row")
