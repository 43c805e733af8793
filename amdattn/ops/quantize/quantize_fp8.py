"""Quantisation of rows to 8 bits: checks, plans and runs."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from amdattn.arch.architectures import Architecture
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import empty, host_empty
from amdattn.arrays.interchange import as_view, to_library_of
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.choices import planner
from amdattn.op.executor import RunnablePlan
from amdattn.op.operands import check_placement, check_shape
from amdattn.op.outputs import output_view
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.gemm.scales import AsScales, scale_view
from amdattn.ops.quantize import planning
from amdattn.ops.quantize.blocks import as_rows, check_block
from amdattn.ops.quantize.problem import BLOCK, BLOCKS, NARROW, PER, QuantizeProblem, chosen

_LAYOUT = "shape of x"


def quantize_fp8(
    x: Any,
    *,
    dtype: Any = None,
    per: str = "row",
    scale: Any = None,
    out: Any = None,
    out_scale: Any = None,
    block: tuple[int, int] | None = None,
    workspace: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Convert x to 8 bits with a scale: ``x / scale`` and the scale, for `gemm_nt`.

    Each number is ``x * (1 / scale)``, with reciprocal and product in float32, rounded to the
    nearest 8-bit number, ties to even. Numbers beyond the greatest one are clamped to it; NaN stays
    NaN.

    Parameters
    ----------
    x : array, bfloat16, float16 or float32, (rows, columns)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the host, strides are
        free; on the device, rows may lie at any distance, and the elements of a row lie next to
        each other.
    dtype : optional
        The type of y: the device's type with 4 exponent bits ("e4m3", the default: float8_e4m3fnuz
        on gfx942, float8_e4m3fn on gfx950) or with 5 ("e5m2": float8_e5m2fnuz, float8_e5m2). With
        `out`, its type is the default.
    per : {"row", "tensor"}
        Whether each row or all of x gets a scale: the greatest magnitude divided by the greatest
        number of y's type (448 for float8_e4m3fn, 240 for float8_e4m3fnuz, 57344 for both types
        with 5 exponent bits), and at least 2**-126. NaN does not count; an infinity makes the scale
        infinite, itself NaN and all other numbers 0.
    scale : array, float32, optional
        A scale to use instead: one element for all of x, or shape (rows,) or (rows, 1) for each
        row. It must be at least 2**-126; infinities of x then become the greatest number.
    out : array, (rows, columns), of y's type, optional
    out_scale : array, float32, (rows, 1) or, per tensor, (1,), optional
        Written instead of new arrays; they share no memory with x or each other.
    block : (1, 128) or (128, 128), optional
        Computes a scale for each 128 numbers of a row, or for 128 columns of 128 rows, of which the
        last block may have fewer. These are the scales that `gemm_nt` takes for a and for b in
        e4m3. The number of columns is a multiple of 128; with (1, 128), rows on the device follow
        each other. The results are new arrays.
    workspace : device array, optional
        See `QuantizePlan.run`.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    y : array, (rows, columns)
        An array of the kind of `x`.
    scale : array, float32, (rows, 1), or (1,) per tensor, or one for each block
        The factor that makes x from y; it is `scale` if that was given.

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
    views: tuple[View, ...] = (as_view(x, "x", handle),)
    shape = views[0].shape
    if len(shape) != 2:
        raise ValueError(f"x has shape {shape}; it must have 2 dimensions")
    per = chosen("per", per, PER)
    if block is not None:
        check_block(block, shape[1])
        for name, value in (("scale", scale), ("out", out), ("out_scale", out_scale)):
            if value is not None:
                raise ValueError(
                    f"{name} was given with block={block}, for which both are new arrays"
                )
        if per != PER[0]:
            raise ValueError(f"per={per!r} must be {PER[0]!r} with block={block}")
        if block[0] == 1:
            views = (as_rows(views[0]),)
        else:
            per = BLOCKS
    of_rows = views[0].shape
    if scale is not None:
        if out_scale is not None:
            raise ValueError("out_scale was given, but no scale is computed, since scale was given")
        view, per = scale_view(scale, "scale", shape[:1], handle)
        views = *views, view
    device = runtime.get(views[0].ordinal)
    text = "dtype={} must be"
    if dtype is None and out is not None:
        dtype, text = output_view(out, "out", handle).dtype, "out has dtype {}; it must be"
    to = _narrow(dtype, device.props.architecture, text)
    lengths = max(1, of_rows[0]), max(1 if block is None else BLOCK, of_rows[1])
    facts = *lengths, views[0].dtype.name, to, per, scale is not None
    plan = _planned_for(device.ordinal, *facts)
    if 0 in of_rows:
        y, made = _of_nothing(x, views, out, out_scale, plan, handle)
    else:
        y, made = plan.execute(x, views, (out, out_scale), "", handle, workspace)
    if block is not None:
        return y.reshape(shape), made.reshape((-(-shape[0] // block[0]), shape[1] // block[1]))
    return y, made if scale is None else scale


def _narrow(dtype: Any, arch: Architecture, text: str) -> str:
    """The value of `QuantizeProblem.to` for a type that a caller names; `text` begins the error."""
    if dtype is None or (isinstance(dtype, str) and dtype in NARROW):
        return dtype or NARROW[0]
    own = dict(zip((arch.fp8, arch.bf8), NARROW, strict=True))
    name = as_dtype(dtype).name
    if name not in own:
        have = " or ".join(f"{full} ({short})" for full, short in own.items())
        raise ValueError(f"{text.format(name)} {have} on {arch.name}")
    return own[name]


def plan_quantize_fp8(
    rows: int, columns: int, *, device: DeviceProps | str, **options: Any
) -> QuantizePlan:
    """Plan a quantisation. No device is queried or bound.

    Parameters
    ----------
    rows, columns : int
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        dtype, to, per, scale: see `QuantizeProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    return planned(QuantizeProblem(rows, columns, **options), as_device_props(device))


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(ordinal: int, *facts: Any) -> QuantizePlan:
    return planned(QuantizeProblem(*facts), runtime.get(ordinal).props)


# -- runs ------------------------------------------------------------------------------------------


class QuantizePlan(RunnablePlan[QuantizeProblem]):
    """A plan that can be run. Made by `plan_quantize_fp8`; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = ("out", "out_scale")
    result_labels: ClassVar[tuple[str, ...]] = ("out", "out_scale")

    def operands(self, variant: str) -> Specs:
        """x, a given scale, out, and a computed scale."""
        p, rows = self.problem, ("row",)
        shape = p.rows, p.columns
        narrow = p.narrow(self.props.architecture)
        specs = (
            OperandSpec("x", "in", shape, as_dtype(p.dtype), rows, layout=_LAYOUT),
            OperandSpec(
                *("scale", "in", (p.scales,), FLOAT32, ()),
                present=p.scale,
                condition="scale",
                host_check=AsScales((p.rows,)),
                layout="one element, or one of each row",
            ),
            OperandSpec("out", "out", shape, narrow, rows, layout=_LAYOUT),
            OperandSpec(
                *("out_scale", "out", p.scale_shape, FLOAT32, rows[: p.per != "tensor"]),
                present=not p.scale,
                condition="scale",
                layout=f"per {p.per}",
            ),
        )
        return {spec.name: spec for spec in specs}

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """An address and the distance of rows."""
        rows = len(view.shape) > 1 and view.shape[0] > 1
        return Operand(view.address, {"row": view.strides[0] if rows else view.shape[-1]})

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """Why an operand does not fit: its scales have gaps."""
        step, wanted = operand.strides["row"], spec.shape[-1]
        if spec.name == "out_scale" and step != wanted:
            return f"row stride {step}, which must be {wanted}"
        return ""

    def run(
        self,
        x: Any,
        scale: Any = None,
        *,
        out: Any = None,
        out_scale: Any = None,
        workspace: Any = None,
        stream: Any = None,
    ) -> tuple[Any, Any]:
        """Run the plan on arrays of its shape; parameters and results as `quantize_fp8`.

        Parameters
        ----------
        workspace : device array, optional
            Memory for the maxima of parts, if all of x gets one scale: made by `new_workspace`, or
            compact with at least ``plan.workspace.total_bytes`` bytes. It is overwritten. Runs at
            the same time need separate workspaces. While a graph is captured, a plan with a
            workspace needs one from the caller.
        """
        views, handle = self.views_of({"x": x, "scale": scale}, stream)
        y, made = self.execute(x, views, (out, out_scale), "", handle, workspace)
        return y, made if scale is None else scale


def _of_nothing(
    kind: Any, views: tuple[View, ...], out: Any, out_scale: Any, plan: QuantizePlan, stream: int
) -> tuple[Any, Any]:
    """Results without elements, after the same checks."""
    x, p = views[0], plan.problem
    if not p.scale and (p.per == "tensor" or (p.per == "row" and x.shape[0] > 0)):
        raise ValueError(
            f"x has shape {x.shape}: without elements no scale can be made per {p.per}"
        )
    dtype = p.narrow(plan.props.architecture)
    must = {"out": (x.shape, dtype)}
    if not p.scale:
        must["out_scale"] = (0, 1), FLOAT32  # no elements, of whatever shape
    named = dict(zip(("x", "scale"), views, strict=False))
    results: dict[str, Any] = {}
    for name, array in (("out", out), ("out_scale", out_scale)):
        if name not in must:
            continue
        shape, element = must[name]
        if array is not None:
            view = named[name] = output_view(array, name, stream)
            check_shape(view, name, shape, element.name, _LAYOUT)
            if view.read_only:
                raise ValueError(f"{name} is read-only")
            results[name] = array
        elif x.on_device:
            results[name] = to_library_of(kind, empty(shape, element.name, x.ordinal))
        else:
            results[name] = to_library_of(kind, host_empty(shape, element))
    check_placement(named)
    return results["out"], results.get("out_scale")


planned = planner(planning, QuantizePlan, planning.best)
