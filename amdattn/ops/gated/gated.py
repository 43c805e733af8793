"""An activation times a factor: checks, plans and runs."""

from __future__ import annotations

import functools
from typing import Any

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.op.choices import planner
from amdattn.op.empty_results import EmptyResult, empty_results
from amdattn.op.executor import RunnablePlan
from amdattn.op.operands import check_shape, row_step, same_elements
from amdattn.op.outputs import output_view
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.gated import planning
from amdattn.ops.gated.problem import GatedProblem
from amdattn.scalars import INT32_MAX, INT32_MIN

_APPROXIMATE = {"none": "gelu", "tanh": "gelu_tanh"}


def silu_and_mul(x: Any, up: Any = None, *, out: Any = None, stream: Any = None) -> Any:
    """``silu(gate) * up``, silu(g) = g / (1 + e^-g), in float32, rounded once.

    Parameters
    ----------
    x : array, bfloat16 or float16, (..., 2 n)
        The gate, then the factor: ``x[..., :n]`` is activated, and ``x[..., n:]`` is up. If `up` is
        given, x is the gate alone, (..., n). numpy (with ml_dtypes), `DeviceArray`, or an array of
        any library with ``__dlpack__``, ``__cuda_array_interface__`` or ``__array__``, on the CPU
        or a GPU. On the host, strides are free; on the device, rows lie at one distance and the
        elements of a row next to each other.
    up : array, like x, (..., n), optional
    out : array, like x, (..., n), optional
        Results are written here instead of to a new array. It may be the gate or the factor itself,
        such as ``x[..., :n]``; otherwise it shares no memory with them.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    array, like x, (..., n)
        An array of the kind of `x`. Infinite gates give the limit: -0 for -inf.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    return _gated(x, up, "silu", out, stream)


def gelu_and_mul(
    x: Any, up: Any = None, *, approximate: str = "none", out: Any = None, stream: Any = None
) -> Any:
    """``gelu(gate) * up`` in float32, rounded once.

    Parameters
    ----------
    x, up, out, stream
        As in `silu_and_mul`: the gate is the first half of x.
    approximate : {"none", "tanh"}
        "none": the gate times its normal distribution function; "tanh":
        ``g / 2 * (1 + tanh(sqrt(2 / pi) * (g + 0.044715 g^3)))``.

    Returns
    -------
    array, like x, (..., n)

    Raises
    ------
    UnsupportedProblem, ValueError, TypeError, UnsupportedDeviceError, HipError
        As `silu_and_mul`.
    """
    return _gated(x, up, activation_of(approximate), out, stream)


def activation_of(approximate: object) -> str:
    """The activation of a problem, by the value of `approximate`."""
    word = scalars.word("approximate", approximate)
    if word not in _APPROXIMATE:
        raise ValueError(f"approximate={word!r} must be {' or '.join(_APPROXIMATE)}")
    return _APPROXIMATE[word]


def _gated(x: Any, up: Any, activation: str, out: Any, stream: Any) -> Any:
    handle = runtime.stream_handle(stream)
    view = as_view(x, "x", handle)
    if not view.shape:
        raise ValueError("x has shape (); it must have at least 1 dimension")
    views = _halves(view) if up is None else (view, as_view(up, "up", handle))
    shape, dtype = views[0].shape, views[0].dtype
    ordinal = runtime.get(view.ordinal).ordinal
    in_place = False
    if out is not None:
        given = output_view(out, "out", handle)
        in_place = any(same_elements(given, one) for one in views)
    lengths = shape if 0 not in shape else tuple(max(1, n) for n in shape)
    plan = _planned_for(ordinal, lengths, dtype.name, activation, in_place)
    if 0 in shape:
        check_shape(views[1], "up", shape, dtype.name, _LAYOUT)
        named = dict(zip(("x", "up"), views, strict=True))
        (result,) = empty_results(
            x, named, {"out": EmptyResult(out, shape, dtype, _LAYOUT)}, handle
        )
        return result
    (result,) = plan.execute(x, views, (out,), "", handle)
    return result


_LAYOUT = "shape of the gate"


def _halves(view: View) -> tuple[View, View]:
    """The gate and the factor of an array that holds both."""
    *rows, both = view.shape
    if both % 2:
        raise ValueError(
            f"x has shape {view.shape}; without up its last axis must be even: the gate and up"
        )
    n = both // 2
    address = view.address + n * view.strides[-1] * view.dtype.itemsize
    parts = (view.address, slice(None, n)), (address, slice(n, None))
    gate, up = (
        View(
            *(at, (*rows, n), view.strides, view.dtype, view.read_only, view.owner),
            array=None if view.array is None else view.array[..., part],
            ordinal=view.ordinal,
        )
        for at, part in parts
    )
    return gate, up


def plan_gated_activation(
    rows: int, columns: int, *, device: DeviceProps | str, **options: Any
) -> GatedPlan:
    """Plan a gated activation. No device is queried or bound.

    Parameters
    ----------
    rows, columns : int
        Rows and columns of the result.
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        dtype, activation, in_place: see `GatedProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    return planned(GatedProblem((rows,), columns, **options), as_device_props(device))


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(
    ordinal: int, shape: tuple[int, ...], dtype: str, activation: str, in_place: bool
) -> GatedPlan:
    problem = GatedProblem(shape[:-1], shape[-1], dtype, activation, in_place)
    return planned(problem, runtime.get(ordinal).props)


# -- runs ------------------------------------------------------------------------------------------


class GatedPlan(RunnablePlan[GatedProblem]):
    """A plan that can be run. Made by `plan_gated_activation`; see `Plan` for what it holds."""

    def operands(self, variant: str) -> Specs:
        """The gate, up and out."""
        p = self.problem
        rows = tuple(map(str, range(len(p.shape))))
        every = (*p.shape, p.columns), as_dtype(p.dtype), rows
        specs = (
            OperandSpec("gate", "in", *every, label="x", layout=_LAYOUT),
            OperandSpec("up", "in", *every, layout=_LAYOUT),
            OperandSpec("out", "out", *every, layout=_LAYOUT),
        )
        return {spec.name: spec for spec in specs}

    @property
    def overwritten(self) -> frozenset[str]:
        """Operands that results may overwrite: a lane reads only what it writes."""
        return frozenset({"x", "up"} if self.problem.in_place else ())

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """The address and the distance of rows, or None if rows have several distances."""
        step = row_step(view)
        return Operand(view.address, {} if step is None else {"row": step})

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """Why an operand does not fit: its rows lie at several distances, or too far apart."""
        if not operand.strides:
            return "rows at several distances, which must be at one"
        step = operand.strides["row"]
        if not INT32_MIN <= step <= INT32_MAX:
            return f"row stride {step}, which must be in {INT32_MIN}..{INT32_MAX}"
        return ""

    def run(self, gate: Any, up: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Run the plan on a gate and a factor of its shape; see `silu_and_mul`."""
        views, handle = self.views_of({"gate": gate, "up": up}, stream)
        (result,) = self.execute(gate, views, (out,), "", handle)
        return result


planned = planner(planning, GatedPlan)
