"""RMS normalisation: checks, plans and runs."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import empty, host_empty
from amdattn.arrays.interchange import as_view, to_library_of
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.op.choices import planner
from amdattn.op.executor import RunnablePlan
from amdattn.op.operands import check_placement, check_shape, refuse_number, row_step, same_elements
from amdattn.op.outputs import output_view
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.layer_norm.layer_norm import normalised
from amdattn.ops.norm import planning
from amdattn.ops.norm.problem import NormProblem


def rms_norm(
    x: Any,
    weight: Any,
    residual: Any = None,
    eps: float = 1e-6,
    *,
    dropout_p: float = 0.0,
    seed: int = 0,
    state: Any = None,
    out_dtype: Any = None,
    scale: Any = None,
    out: Any = None,
    residual_out: Any = None,
    out_scale: Any = None,
    workspace: Any = None,
    stream: Any = None,
) -> Any:
    """``x * weight / sqrt(mean(x^2) + eps)`` along the last axis, in float32, rounded once.

    With a residual, x stands for ``x + residual``, or with dropout for ``dropout(x) + residual``,
    rounded to the type of x; that sum is returned as well.

    Parameters
    ----------
    x : array, bfloat16 or float16, (..., columns)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the host, strides are
        free; on the device, rows lie at one distance and the elements of a row next to each other.
    weight : array, like x or float32, (columns,)
        A float32 weight is not rounded.
    residual : array, like x, (..., columns), optional
    eps : float
        At least 0. Rows of zeros give zeros; with 0 they give NaN.
    dropout_p, seed, state, out_dtype, scale, out_scale, workspace
        As in `layer_norm`: dropout of x, and 8-bit results with `out_dtype` or `scale`.
    out, residual_out : array, like x, optional
        Results are written here instead of to new arrays. Each may be `x` or `residual` itself,
        which is overwritten (``residual_out=residual`` is the sum in place); otherwise they share
        no memory with the inputs.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    out : array, like x
        An array of the kind of `x`. Rows whose squares do not fit float32 are 0.
    residual_out : array, like x
        Only with a residual.
    scale : array, float32, (..., 1)
        Only with 8-bit results, as in `layer_norm`.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    refuse_number(residual, "residual", "fourth")
    if dropout_p or out_dtype is not None or scale is not None:
        inputs = {"x": x, "weight": weight, "residual": residual}
        options: dict[str, Any] = {"dropout_p": dropout_p, "seed": seed, "state": state}
        options |= {"out_dtype": out_dtype, "scale": scale}
        options |= {"workspace": workspace, "stream": stream}
        return normalised(inputs, eps, (out, residual_out, out_scale), rms=True, **options)
    if seed or state is not None or workspace is not None or out_scale is not None:
        named = {"seed": seed or None, "state": state, "workspace": workspace}
        name = next((name for name, one in named.items() if one is not None), "out_scale")
        needed = "out_dtype" if name == "out_scale" else "dropout_p"
        raise ValueError(f"{name} was given, but no {needed}")
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
    ordinal = runtime.get(views[0].ordinal).ordinal
    lengths = shape if 0 not in shape else tuple(max(1, n) for n in shape)
    in_place = (out is not None or residual_out is not None) and any(
        same_elements(output_view(given, name, handle), view)
        for name, given in (("out", out), ("residual_out", residual_out))
        if given is not None
        for view in views
    )
    dtypes = views[0].dtype.name, views[1].dtype.name
    plan = _planned_for(ordinal, lengths, dtypes, residual is not None, eps, in_place)
    if 0 in shape:
        return _of_nothing(x, views, (out, residual_out), handle)
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
        dtype, residual, eps, in_place, weight_dtype: see `NormProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    return planned(NormProblem((rows,), columns, **options), as_device_props(device))


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(
    ordinal: int,
    shape: tuple[int, ...],
    dtypes: tuple[str, str],
    residual: bool,
    eps: float,
    in_place: bool,
) -> NormPlan:
    dtype, of_weight = dtypes
    problem = NormProblem(shape[:-1], shape[-1], dtype, residual, eps, in_place, of_weight)
    return planned(problem, runtime.get(ordinal).props)


# -- runs ------------------------------------------------------------------------------------------


class NormPlan(RunnablePlan[NormProblem]):
    """A plan that can be run. Made by `plan_rms_norm`; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = ("out", "residual_out")
    result_labels: ClassVar[tuple[str, ...]] = ("out", "residual_out")

    def operands(self, variant: str) -> Specs:
        """x, weight, residual, out and residual_out."""
        p = self.problem
        element, layout = as_dtype(p.dtype), "shape of x"
        x = (*p.shape, p.columns), element, tuple(map(str, range(len(p.shape))))
        if_added: dict[str, Any] = {"present": p.residual, "condition": "residual"}
        specs = (
            OperandSpec("x", "in", *x, layout=layout),
            OperandSpec("weight", "in", (p.columns,), p.weight_element, (), layout="columns of x"),
            OperandSpec("residual", "in", *x, layout=layout, **if_added),
            OperandSpec("out", "out", *x, layout=layout),
            OperandSpec("residual_out", "out", *x, layout=layout, **if_added),
        )
        return {spec.name: spec for spec in specs}

    @property
    def overwritten(self) -> frozenset[str]:
        """Operands that results may overwrite: a workgroup reads every row before it writes it."""
        return frozenset({"x", "residual"} if self.problem.in_place else ())

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """The address and the distance of rows, or None if rows have several distances."""
        step = row_step(view)
        return Operand(view.address, {} if step is None else {"row": step})

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """Why an operand does not fit: its rows lie at several distances."""
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


def _of_nothing(kind: Any, views: tuple[View, ...], given: tuple[Any, Any], stream: int) -> Any:
    """Results without elements, after the same checks."""
    x = views[0]
    named = dict(zip(("x", "weight", "residual"), views, strict=False))
    has_residual = "residual" in named
    results = []
    for name, array in zip(("out", "residual_out")[: 1 + has_residual], given, strict=False):
        if array is not None:
            named[name] = output_view(array, name, stream)
            results.append(array)
        elif x.on_device:
            results.append(to_library_of(kind, empty(x.shape, x.dtype.name, x.ordinal)))
        else:
            results.append(to_library_of(kind, host_empty(x.shape, x.dtype)))
    check_placement(named)
    for name, view in named.items():
        of_weight = name == "weight"
        layout = "columns of x" if of_weight else "shape of x"
        dtype = view.dtype if of_weight else x.dtype
        check_shape(view, name, x.shape[-1:] if of_weight else x.shape, dtype.name, layout)
        if name.endswith("out") and view.read_only:
            raise ValueError(f"{name} is read-only")
    return tuple(results) if has_residual else results[0]


planned = planner(planning, NormPlan)
