"""Quantisation of rows to 8 bits: check, plan, run."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from amdattn.arch.architectures import Architecture
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import View, empty, host_empty
from amdattn.arrays.interchange import as_view, like
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
    """``x / scale`` in 8 bits, and the scale: what `gemm_nt` takes as an operand.

    Each number is ``x * (1 / scale)``, reciprocal and product in float32, rounded to the nearest of
    8 bits, ties to even. Beyond the greatest number of the type it is that one; NaN stays NaN.

    Parameters
    ----------
    x : array, bfloat16, float16 or float32, (rows, columns)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the host of any
        strides; on the device rows at any distance, elements of a row next to each other.
    dtype : optional
        Of y: the device's type of 4 exponent bits ("e4m3", the default: float8_e4m3fnuz on gfx942,
        float8_e4m3fn on gfx950) or of 5 ("e5m2": float8_e5m2fnuz, float8_e5m2); that of `out`.
    per : {"row", "tensor"}
        What a scale is made of: the greatest magnitude of a row, or of all of x, divided by the
        greatest number of y's type (448 of float8_e4m3fn, 240 of float8_e4m3fnuz, 57344 of both of
        5 exponent bits), and at least 2**-126. NaN counts as no number; an infinity makes the
        scale infinite, all numbers 0 and itself NaN.
    scale : array, float32, optional
        Taken as it is instead: of one element for all of x, of shape (rows,) or (rows, 1) for each
        row. Positive and at least 2**-126; infinities of x become the greatest number then.
    out : array, (rows, columns), of y's type, optional
    out_scale : array, float32, (rows, 1) or, per tensor, (1,), optional
        Written instead of new arrays; they share no memory with x or each other.
    block : (1, 128) or (128, 128), optional
        A scale is made of each 128 numbers of a row, or of these of 128 rows, of which the last
        ones may be fewer: as `gemm_nt` takes those of a and of b, in e4m3. Columns are a multiple
        of 128, on the device rows of (1, 128) follow each other; the results are new arrays.
    workspace : device array, optional
        See `QuantizePlan.run`.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    y : array, (rows, columns)
        Of the kind of `x`.
    scale : array, float32, (rows, 1), per tensor (1,), one of each block in rows of blocks
        What y is multiplied by to be x again; the one that was given, if one was.

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
                raise ValueError(f"{name} was given with block={block}, of which both are made")
        if per != PER[0]:
            raise ValueError(f"per={per!r} must be {PER[0]!r} with block={block}")
        if block[0] == 1:
            views = (as_rows(views[0]),)
        else:
            per = BLOCKS
    of_rows = views[0].shape
    if scale is not None:
        if out_scale is not None:
            raise ValueError("out_scale was given, but no scale is made: scale was given")
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
    """What `QuantizeProblem.to` says of a type that a caller names; else an error begins so."""
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
        """X, a scale that is given, out and a scale that is made."""
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
        """That scales do not follow each other."""
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
            Of `new_workspace`, or compact, of at least ``plan.workspace.total_bytes`` bytes, for
            the maxima of parts where a scale is made of all of x; its contents are lost. Runs at
            the same time need workspaces of their own. While a graph is captured it must be given
            if the plan has one.
        """
        views, handle = self.views_of({"x": x, "scale": scale}, stream)
        y, made = self.execute(x, views, (out, out_scale), "", handle, workspace)
        return y, made if scale is None else scale


def _of_nothing(
    kind: Any, views: tuple[View, ...], out: Any, out_scale: Any, plan: QuantizePlan, stream: int
) -> tuple[Any, Any]:
    """Results without elements; every check is made of them, too."""
    x, p = views[0], plan.problem
    if not p.scale and (p.per == "tensor" or (p.per == "row" and x.shape[0] > 0)):
        raise ValueError(f"x has shape {x.shape}, of which no scale can be made per {p.per}")
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
            results[name] = like(kind, empty(shape, element.name, x.ordinal))
        else:
            results[name] = like(kind, host_empty(shape, element))
    check_placement(named)
    return results["out"], results.get("out_scale")


planned = planner(planning, QuantizePlan, planning.best)
