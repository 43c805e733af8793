"""Launches of the shipped kernels for matrix products, for the mutation campaign."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from amdattn.arch.props import DeviceProps
from amdattn.device.kernarg import packer
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.plan import Address, PerRun, Plan, Stride
from amdattn.ops.gemm import grids
from amdattn.ops.gemm.cases import GemmCase
from amdattn.ops.gemm.matching import mismatches
from amdattn.ops.gemm.planning import build, choices, plan_gemm
from amdattn.ops.gemm.problem import GemmProblem
from benchmarks.checker_mutation.subject import Buffer, Case, Subject, read_only, unwritten


@dataclass(frozen=True, slots=True)
class _GemmCase:
    m: int
    n: int
    k: int
    options: Mapping[str, Any] = field(default_factory=dict)  # of GemmProblem
    stale: bool = False  # a launch before was aborted
    few_cus: bool = False  # one of each XCD, so that tiles come in several rounds
    columns: int = 0  # of a tile, where plans choose fewer; 0: the plan's choice

    @property
    def name(self) -> str:
        options = "".join(f" {name}={value}" for name, value in self.options.items())
        columns = f" columns={self.columns}" if self.columns else ""
        cus = " few CUs" * self.few_cus
        return f"{self.m}x{self.n}x{self.k}{options}{columns}{cus}{' stale' * self.stale}"


# Whole tiles and rest of each axis, one line of k and more than are in flight, last rounds of any
# number of steps, parts, every type; tiles of 32 rows of b, of which each XCD has one; addends.
_CASES = (
    _GemmCase(16, 64, 64),
    _GemmCase(3, 21, 136, {"bias": True, "out_dtype": "float32"}),
    _GemmCase(65, 64, 2312, {"alpha": -2.0, "split_k": 1}),
    _GemmCase(16, 24, 1016),
    _GemmCase(33, 40, 840, {"split_k": 3, "bias": True, "out_dtype": "float16"}),
    _GemmCase(33, 40, 840, {"split_k": 3, "deterministic": False}),
    _GemmCase(19, 21, 840, {"split_k": 14, "deterministic": False}, stale=True),
    _GemmCase(40, 500, 264, {"split_k": 3, "deterministic": False}, stale=True),
    _GemmCase(40, 500, 264, {"split_k": 3}),
    _GemmCase(19, 21, 840, {"split_k": 14}),
    _GemmCase(23, 21, 136, {"activation": "silu_and_mul", "bias": True}),
    _GemmCase(23, 20, 72, {"activation": "silu_and_mul"}),
    _GemmCase(23, 21, 72, {"activation": "silu_and_mul", "out_dtype": "float32"}),
    _GemmCase(23, 20, 72, {"activation": "silu_and_mul", "out_dtype": "float32"}),
    _GemmCase(5, 20, 72, {"activation": "gelu", "out_dtype": "float32"}),
    _GemmCase(5, 64, 72, {"activation": "gelu_tanh", "out_dtype": "float32"}),
    _GemmCase(5, 20, 584, {"activation": "gelu", "split_k": 1}),
    _GemmCase(19, 121, 72, {"activation": "silu_and_mul", "bias": True}, columns=16),
    _GemmCase(35, 120, 72, {"activation": "gelu_and_mul", "out_dtype": "float16"}, columns=16),
    _GemmCase(18, 250, 72, {"activation": "gelu_tanh", "out_dtype": "float32"}, columns=32),
    _GemmCase(17, 256, 136, {"activation": "silu"}, columns=32),
    _GemmCase(40, 252, 584, {"bias": True}, columns=32),
    _GemmCase(34, 250, 2312, {"alpha": -2.0, "bias": True}, columns=32),
    _GemmCase(23, 21, 72, {"adds": "c", "beta": 0.5}),
    _GemmCase(33, 40, 840, {"split_k": 3, "adds": "residual", "activation": "gelu"}),
    _GemmCase(35, 20, 72, {"adds": "residual", "out_dtype": "float32"}),
    _GemmCase(
        *(40, 44, 840),
        {"split_k": 3, "deterministic": False, "adds": "c", "beta": -2.0, "out_dtype": "float16"},
    ),
)
# Of kernels for many rows: tiles that exist in part and whole ones, any number of steps, every end
# of a tile, several products. Every layout takes them.
_TILE_CASES = (
    _GemmCase(128, 128, 64),
    _GemmCase(260, 264, 136),
    _GemmCase(130, 140, 328, {"bias": True}),
    _GemmCase(20, 34, 72, {"bias": True, "out_dtype": "float32"}),
    _GemmCase(66, 34, 520, {"alpha": -2.0, "out_dtype": "float16"}),
    _GemmCase(66, 72, 72, {"activation": "silu"}),
    _GemmCase(66, 80, 136, {"activation": "silu_and_mul", "bias": True}),
    _GemmCase(34, 42, 72, {"activation": "gelu_and_mul", "out_dtype": "float32"}),
    _GemmCase(130, 136, 136, {"adds": "residual"}),
    _GemmCase(34, 42, 72, {"adds": "c", "beta": 0.5, "out_dtype": "float32"}),
    _GemmCase(66, 72, 136, {"batch": 3, "bias": True}),
    _GemmCase(200, 72, 72, {"groups": 3}),
    _GemmCase(260, 40, 136, {"groups": 67, "bias": True}),
    _GemmCase(150, 140, 840, {"split_k": 3}),
    _GemmCase(258, 264, 840, {"split_k": 2, "bias": True, "out_dtype": "float32"}),
    _GemmCase(150, 140, 328, {"split_k": 3, "adds": "residual", "activation": "silu"}, stale=True),
    _GemmCase(34, 33, 72),
    _GemmCase(130, 133, 72, {"out_dtype": "float32", "bias": True}),
    _GemmCase(67, 33, 136, {"adds": "residual", "activation": "gelu"}),
    _GemmCase(34, 41, 72, {"adds": "c", "beta": 0.5, "out_dtype": "float32"}),
    _GemmCase(66, 72, 72, {"activation": "gelu_tanh", "out_dtype": "float16"}),
    _GemmCase(34, 42, 72, {"activation": "gelu_tanh_and_mul"}),
    _GemmCase(35, 43, 72, {"activation": "silu_and_mul", "out_dtype": "float32"}),
    _GemmCase(66, 72, 72, {"activation": "gelu", "out_dtype": "float32"}),
    _GemmCase(34, 33, 72, {"adds": "c", "beta": 0.5, "out_dtype": "float16"}),
    _GemmCase(34, 33, 72, {"adds": "c", "activation": "silu"}),
    _GemmCase(34, 33, 72, {"adds": "residual", "out_dtype": "float32"}),
    _GemmCase(34, 33, 72, {"adds": "residual", "out_dtype": "float16"}),
    _GemmCase(34, 47, 72, {"adds": "residual", "activation": "silu_and_mul"}),
    _GemmCase(130, 104, 72, {"adds": "c", "out_dtype": "float16", "activation": "gelu_tanh"}),
    _GemmCase(520, 776, 8, few_cus=True),
    _GemmCase(40, 40, 8, {"batch": 11}, few_cus=True),
    _GemmCase(90, 40, 8, {"groups": 11}, few_cus=True),
    # Rows of which some lanes have none, in front of others that have some, at every end.
    _GemmCase(260, 264, 8, {"adds": "residual"}),
    _GemmCase(260, 264, 8, {"adds": "c", "beta": 0.5}),
    _GemmCase(260, 264, 8, {"adds": "residual", "out_dtype": "float32"}),
    _GemmCase(260, 264, 8, {"activation": "gelu", "adds": "c"}),
    _GemmCase(260, 136, 8, {"activation": "silu_and_mul", "adds": "residual"}),
    _GemmCase(2, 8, 8, {"batch": 700}),  # more tiles than XCDs hold at a time
)
_EPS = 0.25  # of kernels that normalise rows
# The launch, and one before it that was aborted.
_GENERATION, _OLDER = 2, 1


def gemm_subject(kernel: KernelSpec, props: DeviceProps) -> Subject:
    """A kernel of the family, in plans that use no other."""
    layout = kernel.accepts["layout"]
    cases = _TILE_CASES if grids.has_windows(kernel) else _CASES
    problems = [
        GemmProblem(c.m, c.n, _k(c, kernel), kernel.dtype, layout=layout, **dict(c.options), **also)
        for c, also in zip(cases, itertools.cycle(_also(kernel)), strict=False)
    ]
    made = tuple(
        _case(case, _plan(case, problem, kernel, props))
        for case, problem in zip(cases, problems, strict=True)
        if not mismatches(kernel, problem)
        and case.columns * (1 + problem.has_factors) <= kernel.tile["n"]
    )
    return Subject(kernel.name, kernel.read_code_object(), kernel.symbol, made)


def _also(kernel: KernelSpec) -> list[dict[str, Any]]:
    """What problems of a kernel have besides, in turn."""
    found: dict[str, Any] = {"rms_eps": _EPS} if "norms_rows" in kernel.accepts else {}
    if as_dtype(kernel.dtype).itemsize == 1:
        found["b_dtype"] = kernel.accepts["b_dtype"][0]
    return [{**found, "scale_a": kind, "scale_b": kind} for kind in kernel.accepts["scales"]]


def _k(case: _GemmCase, kernel: KernelSpec) -> int:
    """As many bytes of a row whatever the type, and what the kernel takes."""
    multiple: int = kernel.accepts["k_multiple"]
    words = case.k * (1 if kernel.dtype in ("bfloat16", "float16") else 2)
    return -(-words // multiple) * multiple


def _plan(
    case: _GemmCase, problem: GemmProblem, kernel: KernelSpec, props: DeviceProps
) -> Plan[GemmProblem]:
    if case.few_cus:
        props = dataclasses.replace(props, num_cus=props.num_xcds)
    if not case.columns:
        return plan_gemm(problem, props, [kernel])
    found = choices(problem, props, [kernel])
    for choice in found.items:
        if (choice.splits, choice.columns) == (max(problem.split_k, 1), case.columns):
            return build(problem, props, choice, found)
    raise ValueError(
        f"case {case.name}: columns={case.columns} must be among those that plans of "
        f"{kernel.name} choose from"
    )


def _case(case: _GemmCase, plan: Plan[GemmProblem]) -> Case:
    (launch,) = plan.launches
    problem, kernel = plan.problem, launch.kernel
    buffers = _contents(case, plan)
    index = {buffer.name: i for i, buffer in enumerate(buffers)}
    shapes = {**problem.input_shapes, "out": problem.out_shape}
    args, layout = dict(launch.args), packer(kernel)
    offsets = {field_name: offset for field_name, offset, *_ in kernel.kernarg.fields}
    values: list[int | float] = []
    pointers = []
    for field_name in layout.names:
        value = args[field_name]
        if isinstance(value, Address):
            if value.operand in index:
                pointers.append((offsets[field_name], index[value.operand]))
            values.append(0)
        elif isinstance(value, PerRun):
            values.append(_GENERATION)
        elif isinstance(value, Stride):
            shape = shapes[value.operand]
            values.append(shape[-1] if value.axis == "row" else math.prod(shape[1:]))
        else:
            values.append(value)
    block = bytearray(layout.size)
    layout.pack_into(block, 0, *values)
    return Case(
        *(case.name, launch.grid, kernel.workgroup, bytes(block), tuple(pointers)), tuple(buffers)
    )


def _contents(case: _GemmCase, plan: Plan[GemmProblem]) -> list[Buffer]:
    problem = plan.problem
    inputs = GemmCase(problem).inputs([problem.m, problem.n, problem.k])
    if problem.groups:
        inputs["group_sizes"] = _even(problem)
    buffers = [read_only(name, inputs[name].tobytes()) for name in problem.input_shapes]
    for region in plan.workspace.regions:
        if region.name == "counters":
            word = (_OLDER << 1 | 1) << 16 | 1 if case.stale else 0
            data = np.full(region.nbytes // 8, word, np.uint64).tobytes()
            buffers.append(Buffer(region.name, region.nbytes, data, contract="zero_at_end"))
        elif problem.deterministic:
            buffers.append(Buffer(region.name, region.nbytes))
        else:
            sums = np.full(region.nbytes // 4, float(case.stale), np.float32).tobytes()
            buffers.append(Buffer(region.name, region.nbytes, sums, contract="zero_at_end"))
    nbytes = math.prod(problem.out_shape) * as_dtype(problem.out_dtype).itemsize
    return [*buffers, unwritten("out", nbytes)]


def _even(problem: GemmProblem) -> npt.NDArray[np.int32]:
    """Rows of groups: as many as each other, and what is left in the first one."""
    rows = problem.k if problem.groups_share_k else problem.m
    sizes = np.full(problem.groups, rows // problem.groups, np.int32)
    sizes[0] += rows % problem.groups
    return sizes
