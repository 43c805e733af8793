"""Layer normalisation, and RMS normalisation with its options: checks, plans and runs."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from amdattn import scalars
from amdattn.arch.architectures import Architecture
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import upload
from amdattn.arrays.interchange import as_view, asarray, to_library_of
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import FLOAT32, DType, as_dtype
from amdattn.op.choices import planner
from amdattn.op.empty_results import EmptyResult, empty_results
from amdattn.op.executor import RunnablePlan
from amdattn.op.operands import check_shape, refuse_number, row_step, same_elements
from amdattn.op.outputs import output_view
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.gemm.scales import AsScales, scale_view
from amdattn.ops.layer_norm import planning
from amdattn.ops.layer_norm.problem import MADE, NARROW, SAME, LayerNormProblem

_LAYOUT = "shape of x"
_RESULTS = "out", "residual_out", "out_scale"


def layer_norm(
    x: Any,
    weight: Any,
    bias: Any = None,
    residual: Any = None,
    eps: float = 1e-5,
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
    """``(h - mean(h)) / sqrt(var(h) + eps) * weight + bias`` along the last axis, rounded once.

    h is x, or with a residual and dropout ``dropout(x) + residual`` rounded to the type of x. That
    sum is returned too if there is a residual. All arithmetic is in float32.

    Parameters
    ----------
    x : array, bfloat16 or float16, (..., columns)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the host, strides are
        free; on the device, rows lie at one distance and the elements of a row next to each other.
    weight : array, like x or float32, (columns,)
        A float32 weight is not rounded.
    bias : array, like weight, (columns,), optional
    residual : array, like x, (..., columns), optional
    eps : float
        At least 0. Rows of equal numbers give the bias; with 0 they give NaN.
    dropout_p : float
        The probability that an element of x becomes 0, at least 0 and less than 1, to the nearest
        2^-16. The others are multiplied by ``1 / (1 - dropout_p)``.
    seed : int
        A seed of 64 bits for dropout: equal seeds drop the same elements. Not allowed with `state`.
    state : array, int32, (4,), optional
        A seed and an offset for dropout, in device memory: two words each, the lower one first, as
        in an int64 array of (2,). A call adds 1 to the offset on the device, so that the replays of
        a graph draw new masks. With `seed` the offset is 0.
    out_dtype : optional
        The type of out: that of x, the default, or the device's 8-bit type with 4 exponent bits,
        "e4m3": float8_e4m3fnuz on gfx942, float8_e4m3fn on gfx950. With `out`, its type is the
        default.
    scale : array, float32, optional
        The divisor of 8-bit results: one element for all rows, or the shape of x with or without a
        last axis of 1. Results beyond the greatest number are clamped to it. By default each row
        gets a scale as in `quantize_fp8`.
    out, residual_out : array, like x (out may have 8 bits), optional
        Results are written here instead of to new arrays. Each may be `x` or `residual` itself,
        which is overwritten (``residual_out=residual`` is the sum in place); otherwise they share
        no memory with the inputs.
    out_scale : array, float32, (..., 1), optional
    workspace : device array, optional
        See `LayerNormPlan.run`.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    out : array, like x, or of 8 bits
        An array of the kind of `x`. NaNs and infinities make their row NaN.
    residual_out : array, like x
        Only with a residual.
    scale : array, float32, (..., 1)
        Only with 8-bit results: their factor, which is `scale` if that was given. `gemm_nt` takes
        both.

    Notes
    -----
    The generator is Philox4x32-10, with the seed as its key and ``(column // 8, row, offset)`` as
    its counter. Word i holds the 16 bits of columns 2 i and 2 i + 1 of these 8, the lower half
    first; an element is dropped if its bits are less than ``round(65536 * dropout_p)``.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    for name, array in (("bias", bias), ("residual", residual)):
        refuse_number(array, name, "fifth")
    options: dict[str, Any] = {
        "dropout_p": dropout_p,
        "seed": seed,
        "state": state,
        "out_dtype": out_dtype,
    }
    options |= {"scale": scale, "workspace": workspace, "stream": stream}
    inputs = {"x": x, "weight": weight, "bias": bias, "residual": residual}
    return normalised(inputs, eps, (out, residual_out, out_scale), rms=False, **options)


def normalised(
    inputs: dict[str, Any],
    eps: float,
    given: tuple[Any, Any, Any],
    *,
    rms: bool,
    dropout_p: float,
    seed: int,
    state: Any,
    out_dtype: Any,
    scale: Any,
    workspace: Any,
    stream: Any,
) -> Any:
    """Run `layer_norm`, or `rms_norm` with all options; `given` are results to write."""
    handle = runtime.stream_handle(stream)
    named = {name: as_view(x, name, handle) for name, x in inputs.items() if x is not None}
    view, kind = named["x"], inputs["x"]
    if not view.shape:
        raise ValueError("x has shape (); it must have at least 1 dimension")
    if "residual" not in named and given[1] is not None:
        raise ValueError("residual_out was given, but no residual")
    if "bias" in named and named["bias"].dtype is not named["weight"].dtype:
        raise ValueError(
            f"bias has dtype {named['bias'].dtype.name}; it must be that of weight, "
            f"{named['weight'].dtype.name}"
        )
    device = runtime.get(view.ordinal)
    to = _type_of(out_dtype, given[0], view.dtype, device.props.architecture, handle)
    of_scale = MADE
    if scale is not None:
        if given[2] is not None:
            raise ValueError("out_scale was given, but no scale is computed, since scale was given")
        named["scale"], of_scale = scale_view(scale, "scale", view.shape[:-1], handle)
    if to == SAME and given[2] is not None:
        raise ValueError(f"out_scale was given, but out_dtype={out_dtype} has no scale")
    in_place = any(
        same_elements(output_view(array, name, handle), named[other])
        for name, array in zip(_RESULTS[:2], given, strict=False)
        if array is not None
        for other in ("x", "residual")
        if other in named
    )
    plan = _planned_for(
        *(device.ordinal, tuple(max(1, n) for n in view.shape) if 0 in view.shape else view.shape),
        *(view.dtype.name, "bias" in named, "residual" in named, scalars.number("eps", eps)),
        *(in_place, named["weight"].dtype.name, dropout_p, to, of_scale, rms),
    )
    seed = scalars.integer("seed", seed)
    if state is not None and seed:
        raise ValueError(f"seed={seed} and state were given; only one of them may be")
    if 0 in view.shape:
        results = _of_nothing(kind, plan, named, given, handle)
    else:
        if plan.problem.draws:
            state = state_of(seed, 0) if state is None else state
            named["state"] = as_view(state, "state", handle)
        if plan.problem.draws and not view.on_device:
            results = _of_host(plan, kind, named, given, state, handle)
        else:
            views = tuple(named[name] for name in plan.input_names)
            results = plan.execute(kind, views, given, "", handle, workspace)
    return _returned(plan.problem, results, scale)


def _returned(problem: LayerNormProblem, results: tuple[Any, ...], scale: Any) -> Any:
    """The results that exist, as a tuple unless there is only one."""
    out, total, made_scale = results
    found = [out] + [total] * problem.residual
    found += [scale if scale is not None else made_scale] * problem.narrow
    return found[0] if len(found) == 1 else tuple(found)


def _type_of(given: Any, out: Any, dtype: DType, arch: Architecture, stream: int) -> str:
    """The value of `LayerNormProblem.to` for the type that a caller names, or for `out`."""
    text = "out_dtype={} must be"
    if given is None:
        if out is None:
            return SAME
        given, text = output_view(out, "out", stream).dtype, "out has dtype {}; it must be"
    if isinstance(given, str) and given == NARROW:
        return NARROW
    own = {dtype.name: SAME, arch.fp8: NARROW}
    name = as_dtype(given).name
    if name not in own:
        raise ValueError(
            f"{text.format(name)} {dtype.name} or {arch.fp8} ({NARROW}) on {arch.name}"
        )
    return own[name]


def state_of(seed: int, offset: int, on_device: bool = True) -> Any:
    """The random state of one call."""
    import numpy as np

    seed = scalars.integer("seed", seed) % 2**64
    words = np.array([np.uint64(seed).astype(np.int64), offset], np.int64).view(np.int32)
    return upload(words) if on_device else words


def _of_host(
    plan: LayerNormPlan,
    kind: Any,
    named: dict[str, View],
    given: tuple[Any, ...],
    state: Any,
    stream: int,
) -> tuple[Any, ...]:
    """Run a call with arrays on the host on the device that has the state."""
    if not named["state"].on_device:
        raise TypeError("state is written in place: it must be in device memory")
    moved = {
        name: view if name == "state" else as_view(asarray(view.array), name, stream)
        for name, view in named.items()
    }
    views = tuple(moved[name] for name in plan.input_names)
    found = plan.execute(state, views, (None,) * len(given), "", stream)
    specs, results = plan.specs(), []
    for name, array, result in zip(_RESULTS, given, found, strict=True):
        if array is None or result is None:
            results.append(None if result is None else to_library_of(kind, result.numpy()))
            continue
        target, spec = output_view(array, name, stream), specs[name]
        check_shape(target, name, spec.shape, spec.dtype.name, spec.layout)
        if target.array is None:
            raise ValueError(f"{name} is in device memory, x is not")
        if target.read_only:
            raise ValueError(f"{name} is read-only")
        target.array[...] = result.numpy()
        results.append(array)
    return tuple(results)


def _of_nothing(
    kind: Any, plan: LayerNormPlan, named: dict[str, View], given: tuple[Any, ...], stream: int
) -> tuple[Any, ...]:
    """Results without elements, after the same checks."""
    p, shape = plan.problem, named["x"].shape
    if p.makes_scale and 0 not in shape[:-1]:
        raise ValueError(f"x has shape {shape}: without elements no scale can be made per row")
    columns = shape[-1:]
    for name, view in named.items():
        if name != "scale":
            of_columns = name in ("weight", "bias")
            must = p.weight_element.name if of_columns else p.dtype
            check_shape(view, name, columns if of_columns else shape, must, _LAYOUT)
    wanted = {"out": EmptyResult(given[0], shape, plan.specs()["out"].dtype, _LAYOUT)}
    if p.residual:
        wanted["residual_out"] = EmptyResult(given[1], shape, as_dtype(p.dtype), _LAYOUT)
    if p.makes_scale:
        wanted["out_scale"] = EmptyResult(given[2], (*shape[:-1], 1), FLOAT32, "per row")
    found = dict(zip(wanted, empty_results(kind, named, wanted, stream), strict=True))
    return tuple(found.get(name) for name in _RESULTS)


def plan_layer_norm(
    rows: int, columns: int, *, device: DeviceProps | str, **options: Any
) -> LayerNormPlan:
    """Plan a normalisation. No device is queried or bound.

    Parameters
    ----------
    rows, columns : int
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        dtype, bias, residual, eps, in_place, weight_dtype, dropout_p, to, scale, rms: see
        `LayerNormProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    return planned(LayerNormProblem((rows,), columns, **options), as_device_props(device))


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(ordinal: int, shape: tuple[int, ...], *facts: Any) -> LayerNormPlan:
    problem = LayerNormProblem(shape[:-1], shape[-1], *facts)
    return planned(problem, runtime.get(ordinal).props)


# -- runs ------------------------------------------------------------------------------------------


class LayerNormPlan(RunnablePlan[LayerNormProblem]):
    """A plan that can be run. Made by `plan_layer_norm`; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = _RESULTS
    result_labels: ClassVar[tuple[str, ...]] = _RESULTS

    def operands(self, variant: str) -> Specs:
        """x, weight, bias, residual, a given scale, the state, and the results."""
        p = self.problem
        layout, narrow = _LAYOUT, p.out_element(self.props.architecture)
        x = (*p.shape, p.columns), as_dtype(p.dtype), tuple(map(str, range(len(p.shape))))
        of_column = (p.columns,), p.weight_element, ()
        if_added: dict[str, Any] = {"present": p.residual, "condition": "residual"}
        specs = (
            OperandSpec("x", "in", *x, layout=layout),
            OperandSpec("weight", "in", *of_column, layout="columns of x"),
            OperandSpec(
                *("bias", "in", *of_column, "", p.bias, "bias"),
                layout="columns of x",
            ),
            OperandSpec("residual", "in", *x, layout=layout, **if_added),
            OperandSpec(
                *("scale", "in", (1,) if p.scale == "tensor" else p.shape, FLOAT32, x[2][:-1]),
                present=p.narrow and not p.makes_scale,
                condition="scale",
                host_check=AsScales(p.shape),
                layout="one element, or one of each row",
            ),
            OperandSpec(
                *("state", "inout", (4,), as_dtype("int32"), ()),
                present=p.draws,
                condition="dropout_p",
                layout="a seed and an offset",
            ),
            OperandSpec("out", "out", x[0], narrow, x[2], layout=layout),
            OperandSpec("residual_out", "out", *x, layout=layout, **if_added),
            OperandSpec(
                *("out_scale", "out", (*p.shape, 1), FLOAT32, x[2]),
                present=p.makes_scale,
                condition="scale",
                layout="per row",
            ),
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
        """Why an operand does not fit: rows lie at several distances, or scales have gaps."""
        if not operand.strides:
            return "rows at several distances, which must be at one"
        step = operand.strides["row"]
        if spec.name == "out_scale" and step != 1:
            return f"row stride {step}, which must be 1"
        return ""

    def run(
        self,
        x: Any,
        weight: Any,
        bias: Any = None,
        residual: Any = None,
        scale: Any = None,
        state: Any = None,
        *,
        out: Any = None,
        residual_out: Any = None,
        out_scale: Any = None,
        workspace: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shape; parameters and results as `layer_norm`.

        Parameters
        ----------
        workspace : device array, optional
            A counter for dropout, made by `new_workspace`, which is 0 before and after a run. Runs
            at the same time need separate workspaces. While a graph is captured, a plan with a
            workspace needs one from the caller.
        """
        given = {"x": x, "weight": weight, "bias": bias, "residual": residual}
        views, handle = self.views_of({**given, "scale": scale, "state": state}, stream)
        results = self.execute(x, views, (out, residual_out, out_scale), "", handle, workspace)
        return _returned(self.problem, results, scale)


planned = planner(planning, LayerNormPlan)
