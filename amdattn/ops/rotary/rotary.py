"""Rotary embedding: checks, plans and runs."""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import DType, as_dtype
from amdattn.op.choices import planner
from amdattn.op.colocation import view_colocated
from amdattn.op.empty_results import EmptyResult, empty_results
from amdattn.op.executor import RunnablePlan
from amdattn.op.head_norm import NORM_EPS
from amdattn.op.operands import operand_of, same_elements
from amdattn.op.outputs import output_view
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.cache_attention.indices import IndexCheck
from amdattn.ops.rotary import planning
from amdattn.ops.rotary.problem import RotaryProblem
from amdattn.scalars import INT32_MAX, INT32_MIN

_AXES = ("batch", "seq", "head")
_LAYOUT = {False: "batch, seqlen, heads, head_dim", True: "tokens, heads, head_dim"}


def apply_rotary_emb(
    x: Any,
    cos: Any,
    sin: Any,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: Any = 0,
    *,
    k: Any = None,
    positions: Any = None,
    q_norm_weight: Any = None,
    k_norm_weight: Any = None,
    norm_eps: float = NORM_EPS,
    out: Any = None,
    k_out: Any = None,
    stream: Any = None,
) -> Any:
    """Rotate pairs of columns of x, and of k in the same launch, by the angles of their positions.

    A pair (a, b) becomes ``(a cos - b sin, b cos + a sin)``, in float32, rounded once; columns
    after the first ``rotary_dim = 2 * cos.shape[1]`` stay as they are. With norm weights, every
    head is normalised first, ``x * weight / sqrt(mean(x^2) + norm_eps)``, as in Qwen 3, and is not
    rounded before the rotation.

    Parameters
    ----------
    x : array, bfloat16 or float16, (batch, seqlen, heads, head_dim) or (tokens, heads, head_dim)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. Strides are free, except
        that the last one is 1 on the device.
    cos, sin : array, like x or float32, (rows, rotary_dim / 2)
        Tables of every position, which `rotary_tables` makes. They are copied to the device if x is
        there and they are not. head_dim and rotary_dim are even; multiples of 16 are fastest.
    interleaved : bool
        True: pairs are columns 2i and 2i + 1 (GPT-J); False: i and i + rotary_dim / 2
        (GPT-NeoX, Llama).
    inplace : bool
        Write the results over x and k.
    seqlen_offsets : int or array, int32 or int64, (batch,)
        Position of the first token of every sequence.
    k : array, like x, with heads of its own, optional
    positions : array, int32 or int64, (batch, seqlen) or (tokens,), optional
        The position of every token, instead of counting from the offset.
    q_norm_weight, k_norm_weight : array, like x, (head_dim,), optional
        Weights of the norms of heads of x, and of k. head_dim is at most 128, or 1024 if it and
        rotary_dim are multiples of 16. They are copied to the device if x is there and they are
        not.
    norm_eps : float
        Added to the mean of squares; at least 2^-126.
    out, k_out : array, like x and k, optional
        Results are written here instead of to new arrays: x and k themselves, or memory that no
        other operand has.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    out : array, like x
    k_out : array, like k
        Only with k.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input, such as a position on the host beyond the tables. Nothing was launched. A
        position on the device beyond the tables makes the rotated columns of its token NaN, and
        checked mode reports it.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    handle = runtime.stream_handle(stream)
    view = as_view(x, "x", handle)
    if len(view.shape) not in (3, 4):
        raise ValueError(f"x has shape {view.shape}; it must have 3 or 4 dimensions")
    packed = len(view.shape) == 3
    batch, seqlen, heads, dim = view.shape if not packed else (1, *view.shape)
    tables = [view_colocated(t, n, view.ordinal, handle) for t, n in ((cos, "cos"), (sin, "sin"))]
    for name, table in zip(("cos", "sin"), tables, strict=True):
        if len(table.shape) != 2 or table.shape != tables[0].shape:
            raise ValueError(
                f"{name} has shape {table.shape}; cos and sin must be (rows, rotary_dim / 2) both"
            )
    views = {"x": view, "cos": tables[0], "sin": tables[1]}
    if k is not None:
        views["k"] = as_view(k, "k", handle)
        if len(views["k"].shape) != len(view.shape):
            raise ValueError(
                f"k has shape {views['k'].shape}; it must have those of x, {view.shape}"
            )
    else:
        for name, given in (("k_out", k_out), ("k_norm_weight", k_norm_weight)):
            if given is not None:
                raise ValueError(f"{name} was given, but no k")
    for name, weight in (("q_norm_weight", q_norm_weight), ("k_norm_weight", k_norm_weight)):
        if weight is not None:
            views[name] = view_colocated(weight, name, view.ordinal, handle)
    inplace = scalars.boolean("inplace", inplace)
    if inplace:
        if out is not None or k_out is not None:
            raise ValueError("out and k_out must be left out with inplace=True")
        out, k_out = x, k
    of_whom, rows = "none", tables[0].shape[0]
    if positions is not None:
        if not (type(seqlen_offsets) is int and seqlen_offsets == 0):
            raise ValueError("seqlen_offsets must be 0 with positions")
        of_whom = "tokens"
    elif isinstance(seqlen_offsets, int) or getattr(seqlen_offsets, "shape", None) == ():
        first = scalars.integer("seqlen_offsets", seqlen_offsets)
        if rows < seqlen:
            raise ValueError(f"cos has {rows} positions, but x has {seqlen} tokens a sequence")
        if not 0 <= first <= rows - seqlen:
            raise ValueError(
                f"seqlen_offsets={first} must be in 0..{rows - seqlen}: cos has {rows} positions, "
                f"x has {seqlen} tokens a sequence"
            )
        views |= {name: _rows_of(views[name], first, seqlen) for name in ("cos", "sin")}
        rows = seqlen
    else:
        of_whom = "offsets"
    in_place = any(
        given is not None and same_elements(output_view(given, name, handle), views[of])
        for name, given, of in (("out", out, "x"), ("k_out", k_out, "k"))
        if of in views
    )
    heads_k = views["k"].shape[-2] if k is not None else 0
    if 0 in (batch, seqlen, heads, dim) or (k is not None and heads_k == 0):
        return _of_nothing(x, views, (out, k_out), handle)
    problem = RotaryProblem(
        *(batch, seqlen, heads, dim, heads_k, 2 * tables[0].shape[1], rows),
        *(view.dtype.name, tables[0].dtype.name, scalars.boolean("interleaved", interleaved)),
        *(of_whom, in_place, packed),
        q_norm=q_norm_weight is not None,
        k_norm=k_norm_weight is not None,
        norm_eps=norm_eps,
    )
    plan = _planned_for(runtime.get(view.ordinal).ordinal, problem)
    places = {"tokens": ("positions", positions), "offsets": ("seqlen_offsets", seqlen_offsets)}
    if of_whom in places:
        name, array = places[of_whom]
        read = plan.specs()[name].host_check
        assert read is not None
        views[name] = read(array, name, view.ordinal, handle)
    ordered = tuple(views[name] for name in plan.input_names)
    results = plan.execute(x, ordered, (out, k_out), "", handle)
    return results[0] if k is None else results


def plan_rotary(
    batch: int, seqlen: int, heads: int, head_dim: int, *, device: DeviceProps | str, **options: Any
) -> RotaryPlan:
    """Plan a rotary embedding. No device is queried or bound.

    Parameters
    ----------
    batch, seqlen, heads, head_dim : int
        Of x.
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        heads_k, rotary_dim, table_rows, dtype, table_dtype, interleaved, positions, in_place,
        packed, q_norm, k_norm, norm_eps: see `RotaryProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    problem = RotaryProblem(batch, seqlen, heads, head_dim, **options)
    return planned(problem, as_device_props(device))


@functools.lru_cache(maxsize=1024)
def _planned_for(ordinal: int, problem: RotaryProblem) -> RotaryPlan:
    return planned(problem, runtime.get(ordinal).props)


# -- runs ------------------------------------------------------------------------------------------


class RotaryPlan(RunnablePlan[RotaryProblem]):
    """A plan that can be run. Made by `plan_rotary`; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = ("out", "k_out")
    result_labels: ClassVar[tuple[str, ...]] = ("out", "k_out")

    def operands(self, variant: str) -> Specs:
        """x, the tables, k, positions, and the results."""
        p = self.problem
        element, axes = as_dtype(p.dtype), _AXES[p.packed :]
        of_x = (p.batch, p.seqlen, p.heads, p.head_dim)[p.packed :]
        of_k = (p.batch, p.seqlen, p.heads_k, p.head_dim)[p.packed :]
        tables = (p.table_rows, p.rotary_dim // 2), p.table, ("row",)
        tokens = (p.batch, p.seqlen)[p.packed :]
        layout: dict[str, Any] = {"layout": _LAYOUT[p.packed]}
        if_k: dict[str, Any] = {"present": p.heads_k > 0, "condition": "heads_k", **layout}
        of_table: dict[str, Any] = {"layout": "rows, rotary_dim / 2", "host_check": view_colocated}

        def index(name: str, shape: tuple[int, ...], most: int, why: str) -> OperandSpec:
            wanted = {"positions": "tokens", "seqlen_offsets": "offsets"}[name]
            return OperandSpec(
                *(name, "in", shape, as_dtype("int32"), ("batch",)[: len(shape) - 1]),
                present=p.positions == wanted,
                condition="positions",
                host_check=IndexCheck(shape, max(0, most), why),
                typical=functools.partial(_counted, shape),
            )

        told = f"cos has {p.table_rows} positions"
        specs = (
            OperandSpec("x", "in", of_x, element, axes, **layout),
            OperandSpec("cos", "in", *tables, **of_table),
            OperandSpec("sin", "in", *tables, **of_table),
            OperandSpec("k", "in", of_k, element, axes, **if_k),
            index("positions", tokens, p.table_rows - 1, told),
            index("seqlen_offsets", (p.batch,), p.table_rows - p.seqlen, told),
            _weight_spec("q_norm_weight", p.head_dim, element, "q_norm", p.q_norm),
            _weight_spec("k_norm_weight", p.head_dim, element, "k_norm", p.k_norm),
            OperandSpec("out", "out", of_x, element, axes, **layout),
            OperandSpec("k_out", "out", of_k, element, axes, **if_k),
        )
        return {spec.name: spec for spec in specs}

    @property
    def overwritten(self) -> frozenset[str]:
        """Operands that results may overwrite: a lane reads only what it writes."""
        return frozenset({"x", "k"} if self.problem.in_place else ())

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """The address and strides; 0 for an axis that does not exist."""
        if spec.name == "seqlen_offsets":
            return Operand(view.address, {"batch": view.strides[0] if view.shape[0] > 1 else 1})
        found = operand_of(view, spec.axes)
        return Operand(found.address, {"batch": 0, **found.strides})

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """Why an operand does not fit: tables have gaps, or strides are too large."""
        if spec.name in ("cos", "sin"):
            step, wanted = operand.strides["row"], spec.shape[-1]
            return f"row stride {step}, which must be {wanted}" if step != wanted else ""
        for axis, step in operand.strides.items():
            if not INT32_MIN <= step <= INT32_MAX:
                return f"{axis} stride {step}, which must be in {INT32_MIN}..{INT32_MAX}"
        return ""

    def run(
        self,
        x: Any,
        cos: Any,
        sin: Any,
        k: Any = None,
        *,
        positions: Any = None,
        seqlen_offsets: Any = None,
        q_norm_weight: Any = None,
        k_norm_weight: Any = None,
        out: Any = None,
        k_out: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shape; parameters and results as `apply_rotary_emb`."""
        given = {"x": x, "cos": cos, "sin": sin, "k": k, "positions": positions}
        given |= {"seqlen_offsets": seqlen_offsets}
        given |= {"q_norm_weight": q_norm_weight, "k_norm_weight": k_norm_weight}
        views, handle = self.views_of(given, stream)
        results = self.execute(x, views, (out, k_out), "", handle)
        return results if self.problem.heads_k else results[0]


def _counted(shape: tuple[int, ...]) -> Any:
    """Positions as in most calls: tokens from 0 on, or offsets of 0."""
    import numpy as np

    seqlen = shape[-1] if len(shape) == 2 else 1
    return (np.arange(math.prod(shape)) % seqlen).reshape(shape).astype(np.int32)


def _rows_of(table: View, first: int, count: int) -> View:
    """A number of rows of a table."""
    step = table.strides[0] * table.dtype.itemsize
    return View(
        *(table.address + first * step, (count, table.shape[1]), table.strides, table.dtype),
        *(table.read_only, table.owner),
        array=None if table.array is None else table.array[first : first + count],
        ordinal=table.ordinal,
    )


def _of_nothing(kind: Any, views: dict[str, View], given: tuple[Any, Any], stream: int) -> Any:
    x = views["x"]
    layout = _LAYOUT[len(x.shape) == 3]
    wanted = {"out": EmptyResult(given[0], x.shape, x.dtype, layout)}
    if "k" in views:
        wanted["k_out"] = EmptyResult(given[1], views["k"].shape, x.dtype, layout)
    results = empty_results(
        kind, {name: views[name] for name in ("x", "k") if name in views}, wanted, stream
    )
    return results if "k" in views else results[0]


def _weight_spec(
    name: str, head_dim: int, dtype: DType, condition: str, there: bool
) -> OperandSpec:
    """The required shape and type of the operand `name`."""
    return OperandSpec(
        *(name, "in", (head_dim,), dtype, ()),
        present=there,
        condition=condition,
        host_check=view_colocated,
        layout="head_dim",
    )


planned = planner(planning, RotaryPlan)
