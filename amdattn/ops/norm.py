"""RMS normalisation of rows, also of the sum with a residual: check, plan, run; its cases."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import View, empty, host_empty
from amdattn.arrays.interchange import as_view, like
from amdattn.device import manifest, runtime
from amdattn.device.manifest import KernelSpec, candidates
from amdattn.dtypes import as_dtype
from amdattn.op.choices import Choices
from amdattn.op.executor import RunnablePlan
from amdattn.op.mismatch import Mismatch, Span
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.operands import check_placement, check_shape
from amdattn.op.operation import Case, Expected, Operation
from amdattn.op.options import REQUIRED, Option
from amdattn.op.outputs import output_view
from amdattn.op.plan import Address, Argument, Launch, Operand, Plan, Stride
from amdattn.op.spec import OperandSpec, Specs
from amdattn.op.workspace import WorkspaceLayout
from amdattn.ops.norm_kernels import RMS_NORM, cost_clk, grid
from amdattn.scalars import FLOAT32_MAX, INT32_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rms_norm(
    x: Any,
    weight: Any,
    residual: Any = None,
    eps: float = 1e-6,
    *,
    out: Any = None,
    residual_out: Any = None,
    stream: Any = None,
) -> Any:
    """``x * weight / sqrt(mean(x^2) + eps)`` along the last axis, in float32, rounded once.

    With a residual x is ``x + residual``, rounded to its type, which is returned, too.

    Parameters
    ----------
    x : array, bfloat16 or float16, (..., columns)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the host of any
        strides; on the device rows at one distance, elements of a row next to each other.
    weight : array, like x, (columns,)
    residual : array, like x, (..., columns), optional
    eps : float
        At least 0. Rows of zeros are then zeros; with 0 they are NaN.
    out, residual_out : array, like x, optional
        Written instead of new arrays; they share no memory with the inputs.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    out : array, like x
        Of the kind of `x`. Rows whose squares do not fit float32 are 0.
    residual_out : array, like x
        Only with a residual.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    handle = runtime.stream_handle(stream)
    views: tuple[View, ...] = as_view(x, "x", handle), as_view(weight, "weight", handle)
    if residual is not None:
        views = *views, as_view(residual, "residual", handle)
    if type(eps) is not float:
        eps = scalars.number("eps", eps)
    if residual is None and residual_out is not None:
        raise ValueError("residual_out was given, but no residual")
    shape = views[0].shape
    if not shape:
        raise ValueError("x has shape (); it must have at least 1 dimension")
    if 0 in shape:
        return _of_nothing(x, views, (out, residual_out), handle)
    ordinal = runtime.get(views[0].ordinal).ordinal
    plan = _planned_for(ordinal, shape, views[0].dtype.name, residual is not None, eps)
    results = plan.execute(x, views, (out, residual_out), "", handle)
    return results[0] if residual is None else results


def plan_rms_norm(
    rows: int, columns: int, *, device: DeviceProps | str, **options: Any
) -> NormPlan:
    """Plan a normalisation. No device is queried or bound.

    Parameters
    ----------
    rows, columns : int
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        dtype, residual, eps: see `NormProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    return planned(NormProblem((rows,), columns, **options), as_device_props(device))


# -- the problem -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NormProblem:
    """RMS normalisation of rows.

    Parameters
    ----------
    shape : tuple of int
        Of x but for the last axis; together the rows.
    columns : int
    dtype : str
    residual : bool
        Whether one is added before.
    eps : float

    Raises
    ------
    ValueError, TypeError
        A malformed value. Whether a kernel exists is decided later.
    """

    shape: tuple[int, ...]
    columns: int
    dtype: str = "bfloat16"
    residual: bool = False
    eps: float = 1e-6

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("shape", tuple(scalars.integer("rows", count) for count in self.shape))
        put("columns", scalars.integer("columns", self.columns))
        for name, count in (("rows", self.rows), ("columns", self.columns)):
            if not 1 <= count <= INT32_MAX:
                raise ValueError(f"{name}={count} must be in 1..{INT32_MAX}")
        put("dtype", as_dtype(self.dtype).name)
        put("residual", scalars.boolean("residual", self.residual))
        put("eps", scalars.number("eps", self.eps))
        if not 0 <= self.eps <= FLOAT32_MAX:
            raise ValueError(f"eps={self.eps} must be in 0..{FLOAT32_MAX}")

    @property
    def rows(self) -> int:
        """Of x."""
        return math.prod(self.shape)

    @property
    def text(self) -> str:
        """Every argument."""
        return (
            f"rms_norm {self.dtype}, rows={self.rows} columns={self.columns} "
            f"residual={self.residual} eps={self.eps:.6g}"
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        of_dtype = f" {self.dtype}" * (self.dtype != "bfloat16")
        return f"{self.rows}x{self.columns}{of_dtype}{' residual' * self.residual}"

    @property
    def flops(self) -> int:
        """Of squares, sums and products."""
        return (4 + self.residual) * self.rows * self.columns

    @property
    def nbytes(self) -> int:
        """Bytes of all operands, each counted once."""
        matrices = 4 if self.residual else 2
        return (matrices * self.rows + 1) * self.columns * as_dtype(self.dtype).itemsize


# -- planning --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel and its estimated clocks."""

    kernel: KernelSpec
    clk: float

    @property
    def facts(self) -> dict[str, object]:
        """What tells it from the others."""
        return {"kernel": self.kernel.name}


def mismatches(kernel: KernelSpec, problem: NormProblem) -> list[Mismatch]:
    """Everything in `problem` that `kernel` does not implement; empty if it solves it."""
    found = []
    if problem.dtype != kernel.dtype:
        found.append(Mismatch("dtype", problem.dtype, (kernel.dtype,)))
    for name, value in (("rows", problem.rows), ("columns", problem.columns)):
        least, most = kernel.accepts[name]
        if not least <= value <= most:
            found.append(Mismatch(name, value, (Span(least, most),)))
    if problem.residual not in kernel.accepts["residual"]:
        allowed = tuple(kernel.accepts["residual"])
        found.append(Mismatch("residual", problem.residual, allowed))
    if not found:
        most = kernel.accepts["max_workgroups"]
        workgroups = math.prod(grid(kernel, problem.rows, problem.columns))
        if workgroups > most:
            rows = most * kernel.tile["rows"]
            found.append(Mismatch("rows", problem.rows, (Span(1, rows),)))
    return found


def choices(
    problem: NormProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> Choices[Choice]:
    """Every kernel that takes a problem."""
    found = [(row, mismatches(row, problem)) for row in candidates(rows, RMS_NORM, props)]
    items = [
        Choice(row, cost_clk(row, problem.rows, problem.columns, problem.residual, props))
        for row, wrong in found
        if not wrong
    ]
    rejected = sorted(((row, wrong) for row, wrong in found if wrong), key=lambda r: len(r[1]))
    return Choices(tuple(items), tuple(rejected), rows)


def build(
    problem: NormProblem, props: DeviceProps, choice: Choice, choices: Choices[Choice]
) -> Plan[NormProblem]:
    """The plan of a choice."""
    kernel = choice.kernel
    args: dict[str, Argument] = {
        "x": Address("x"),
        "weight": Address("weight"),
        "x_stride": Stride("x", "row"),
        "columns": problem.columns,
        "rows": problem.rows,
        "eps": problem.eps,
        "out": Address("out"),
        "out_stride": Stride("out", "row"),
    }
    has = problem.residual
    args |= {"residual": Address("residual") if has else 0}
    args |= {"sum": Address("residual_out") if has else 0}
    args |= {"residual_stride": Stride("residual", "row") if has else 0}
    args |= {"sum_stride": Stride("residual_out", "row") if has else 0}
    fields = tuple((name, args[name]) for name, *_ in kernel.kernarg.fields)
    per_cu, limit = workgroups_per_cu(kernel, props)
    tried = ", ".join(f"{one.kernel.name}: {one.clk:.0f} clk" for one in choices.items)
    reasons = {
        "why this kernel": f"least estimated time: {tried}",
        "tiles": f"{kernel.tile['rows']} rows x {kernel.tile['columns']} columns",
        "workgroups per CU": f"{per_cu}, limited by {limit}",
        "work": f"{problem.nbytes} bytes",
    }
    writes = frozenset({"out", "residual_out"} if has else {"out"})
    launch = Launch(kernel, grid(kernel, problem.rows, problem.columns), fields, writes)
    return Plan(problem, props, (launch,), WorkspaceLayout(), tuple(reasons.items()))


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(
    ordinal: int, shape: tuple[int, ...], dtype: str, residual: bool, eps: float
) -> NormPlan:
    problem = NormProblem(shape[:-1], shape[-1], dtype, residual, eps)
    return planned(problem, runtime.get(ordinal).props)


@functools.lru_cache(maxsize=1024)
def planned(problem: NormProblem, props: DeviceProps) -> NormPlan:
    """The plan of a problem on a device."""
    found = OPERATION.plan(problem, props, manifest.kernels())
    assert isinstance(found, NormPlan)
    return found


# -- runs ------------------------------------------------------------------------------------------


class NormPlan(RunnablePlan[NormProblem]):
    """A plan that can be run. Made by `plan_rms_norm`; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = ("out", "residual_out")
    result_labels: ClassVar[tuple[str, ...]] = ("out", "residual_out")

    def operands(self, variant: str) -> Specs:
        """X, weight, residual, out and residual_out."""
        p = self.problem
        element, layout = as_dtype(p.dtype), "shape of x"
        x = (*p.shape, p.columns), element, tuple(map(str, range(len(p.shape))))
        if_added: dict[str, Any] = {"present": p.residual, "condition": "residual"}
        specs = (
            OperandSpec("x", "in", *x, layout=layout),
            OperandSpec("weight", "in", (p.columns,), element, (), layout="columns of x"),
            OperandSpec("residual", "in", *x, layout=layout, **if_added),
            OperandSpec("out", "out", *x, layout=layout),
            OperandSpec("residual_out", "out", *x, layout=layout, **if_added),
        )
        return {spec.name: spec for spec in specs}

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """An address and the distance of rows, none where they have several."""
        step = _row_step(view)
        return Operand(view.address, {} if step is None else {"row": step})

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """That rows do not lie at one distance."""
        return "" if operand.strides else "rows at several distances, which must be at one"

    def run(
        self,
        x: Any,
        weight: Any,
        residual: Any = None,
        *,
        out: Any = None,
        residual_out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shape; parameters and results as `rms_norm`."""
        views, handle = self.views_of({"x": x, "weight": weight, "residual": residual}, stream)
        results = self.execute(x, views, (out, residual_out), "", handle)
        return results if self.problem.residual else results[0]


def _row_step(view: View) -> int | None:
    """Elements from row to row, all axes but the last taken as one; None if there is no one."""
    step = reach = None
    for length, stride in zip(view.shape[-2::-1], view.strides[-2::-1], strict=True):
        if length == 1:
            continue
        if step is None:
            step, reach = stride, stride
        elif stride != reach:
            return None
        reach = stride * length
    return view.shape[-1] if step is None else step


def _of_nothing(kind: Any, views: tuple[View, ...], given: tuple[Any, Any], stream: int) -> Any:
    """Results without elements; every check is made of them, too."""
    x = views[0]
    named = dict(zip(("x", "weight", "residual"), views, strict=False))
    has_residual = "residual" in named
    results = []
    for name, array in zip(("out", "residual_out")[: 1 + has_residual], given, strict=False):
        if array is not None:
            named[name] = output_view(array, name, stream)
            results.append(array)
        elif x.on_device:
            results.append(like(kind, empty(x.shape, x.dtype.name, x.ordinal)))
        else:
            results.append(like(kind, host_empty(x.shape, x.dtype)))
    check_placement(named)
    for name, view in named.items():
        shape = x.shape[-1:] if name == "weight" else x.shape
        check_shape(view, name, shape, x.dtype.name, "shape of x")
    return tuple(results) if has_residual else results[0]


# -- the operation ---------------------------------------------------------------------------------

# Largest relative error of one rounding.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_OF_SUMS = 2.0**-15  # float32 sums of some hundreds of squares in a lane, and those of lanes


@dataclass(frozen=True)
class NormCase(Case[NormProblem]):
    """Normally distributed rows."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand, the same for the same seed."""
        import numpy as np

        problem, rng = self.problem, np.random.default_rng(seed)
        element = as_dtype(problem.dtype).numpy()
        shapes = {"x": (*problem.shape, problem.columns), "weight": (problem.columns,)}
        shapes |= {"residual": shapes["x"]} if problem.residual else {}
        return {
            name: rng.standard_normal(shape, np.float32).astype(element)
            for name, shape in shapes.items()
        }


def expected(case: NormCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """In float64; wrong by one rounding, and a little by float32 sums. The sum is exact."""
    import numpy as np

    x, weight = inputs["x"], inputs["weight"].astype(np.float64)
    found = {}
    if case.problem.residual:
        added = x.astype(np.float32) + inputs["residual"].astype(np.float32)
        x = added.astype(x.dtype)
        found["residual_out"] = Expected(x.astype(np.float64), 0.0)
    rows = x.astype(np.float64)
    mean = (rows**2).mean(axis=-1, keepdims=True)
    out = rows * weight / np.sqrt(mean + np.float64(np.float32(case.problem.eps)))
    allowed = (_ROUNDING[case.problem.dtype] + _OF_SUMS) * float(np.abs(out).max())
    return {"out": Expected(out, allowed), **found}


_SIZES = (
    *((1, 1), (3, 2), (2, 7), (5, 8), (9, 9), (33, 63), (31, 64), (65, 65), (3, 127), (2, 1025)),
    *((7, 1000), (4, 4095), (3, 4096), (2, 8193), (1, 16384), (1, 16385)),
)


def cases(row: KernelSpec | None) -> Iterator[NormCase]:
    """Around the sizes of chunks, waves and tiles; of a kernel around its own least and most."""
    if row is None:
        for i, (rows, columns) in enumerate(_SIZES):
            for dtype in ("bfloat16", "float16"):
                yield NormCase(NormProblem((rows,), columns, dtype, residual=i % 2 == 0))
        return
    least, most = row.accepts["columns"]
    tile = row.tile["rows"]
    for residual in row.accepts["residual"]:
        for rows, columns in (
            *((1, least), (tile + 1, most), (2 * tile + 1, most - 1)),
            (tile + 2, max(least, most // 2 + 3)),
        ):
            problem = NormProblem((rows,), columns, row.dtype, residual, 1e-5)
            yield NormCase(problem, kernel=row.name)


def larger(on_gpu: bool) -> Iterator[NormCase]:
    """The rows of a long prompt."""
    for dtype in ("bfloat16", "float16"):
        yield NormCase(NormProblem((8192 if on_gpu else 400,), 4096, dtype, residual=True))


def _problem(rows: int, **options: Any) -> NormProblem:
    return NormProblem((rows,), **options)


OPERATION = Operation(
    name="rms_norm",
    title="the normalisation of rows",
    kernel_ops=(RMS_NORM,),
    plan_type=NormPlan,
    options=(
        Option("rows", int, REQUIRED, "Of x."),
        Option("columns", int, REQUIRED, "Elements of a row."),
        Option("dtype", str, "bfloat16", "bfloat16 or float16."),
        Option("residual", bool, False, "Added before; the sum is a result.", ("--residual",)),
        Option("eps", float, 1e-6, "Added to the mean of squares."),
    ),
    problem=_problem,
    choices=choices,
    cost=lambda choice: choice.clk,
    best=lambda items: min(items, key=lambda choice: choice.clk),
    build=build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
