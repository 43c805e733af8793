"""Merging attention over disjoint sets of keys: checks, plans and runs."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import empty, host_empty
from amdattn.arrays.interchange import as_view, to_library_of
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import FLOAT32, DType, as_dtype
from amdattn.op.choices import planner
from amdattn.op.executor import RunnablePlan
from amdattn.op.operands import check_placement, check_shape
from amdattn.op.outputs import output_view
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.merge import planning
from amdattn.ops.merge.planning import STRIDE_BYTES, in_bytes
from amdattn.ops.merge.problem import MergeProblem

# Axes of a result except the last; parts have one more in front.
_LAYOUTS = {"bshd": ("batch", "seq", "head"), "bhsd": ("batch", "head", "seq")}
_OF_LSE = ("batch", "head")  # and seq, next to each other
_SIZES = {"part": "num_parts", "batch": "batch", "seq": "seqlen", "head": "num_heads"}
_RESULTS = ("out", "lse_out")
_OF_ROWS = ("o", "out")  # operands of head_dim elements a row


def merge_state(
    o: Any,
    lse: Any,
    *,
    layout: str = "bshd",
    out: Any = None,
    lse_out: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """Merge attention over disjoint sets of keys into attention over all of them.

    Each row is ``out = sum_p exp(lse[p] - L) * o[p]`` with ``L = log(sum_p exp(lse[p]))``. Parts
    are summed in their order, in float32, and rounded once to nearest even.

    Parameters
    ----------
    o : array, bfloat16, float16 or float32, (num_parts, batch, seqlen, num_heads, head_dim)
        The results of attention over each set of keys, as `flash_attn_func` returns them. head_dim
        is a multiple of 8 (4 for float32) up to 256. numpy (with ml_dtypes), `DeviceArray`, or an
        array of any library with ``__dlpack__``, ``__cuda_array_interface__`` or ``__array__``, on
        the CPU or a GPU. On the host, strides are free; on the device, the elements of a row lie
        next to each other and rows begin at multiples of 16 bytes.
    lse : array, float32, (num_parts, batch, num_heads, seqlen)
        Natural logarithms, as `flash_attn_func` returns them. -inf means that the part has no key
        for the row; its o is then not used. NaN and +inf make the row NaN.
    layout : {"bshd", "bhsd"}
        The layout of o and out; "bhsd" is (num_parts, batch, num_heads, seqlen, head_dim).
    out : array, like o without its first axis, optional
    lse_out : array, float32, (batch, num_heads, seqlen), optional
        Results are written here instead of to new arrays; they share no memory with the inputs.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    out : array, like o without its first axis
        An array of the kind of `o`. Rows without keys in any part are 0.
    lse_out : array, float32, (batch, num_heads, seqlen)
        L; -inf for rows without keys.

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
    views = as_view(o, "o", handle), as_view(lse, "lse", handle)
    shape = views[0].shape
    axes = _axes(layout)
    if len(shape) != len(axes) + 1:
        told = ", ".join(_SIZES[axis] for axis in axes)
        raise ValueError(f"o has shape {shape}; it must have 5 dimensions ({told}, head_dim)")
    ordinal = runtime.get(views[0].ordinal).ordinal
    # Without rows nothing can be planned; a plan of one row makes the remaining checks.
    is_empty = 0 in shape[1:-1]
    lengths = (shape[0], *(max(1, n) for n in shape[1:-1]), shape[-1]) if is_empty else shape
    plan = _planned_for(ordinal, lengths, views[0].dtype.name, layout)
    if is_empty:
        return _of_nothing(o, views, (out, lse_out), layout, handle)
    results = plan.execute(o, views, (out, lse_out), layout, handle)
    return results[0], results[1]


def plan_merge_state(
    num_parts: int,
    batch: int,
    seqlen: int,
    num_heads: int,
    head_dim: int,
    *,
    device: DeviceProps | str,
    dtype: Any = "bfloat16",
) -> MergePlan:
    """Plan a merge of partial attention results. No device is queried or bound.

    Parameters
    ----------
    num_parts, batch, seqlen, num_heads, head_dim : int
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    dtype : str
        bfloat16, float16 or float32.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    problem = MergeProblem(num_parts, batch, seqlen, num_heads, head_dim, dtype)
    return planned(problem, as_device_props(device))


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(ordinal: int, shape: tuple[int, ...], dtype: str, layout: str) -> MergePlan:
    sizes = dict(zip(_axes(layout), shape, strict=False))
    counts = {_SIZES[axis]: length for axis, length in sizes.items()}
    problem = MergeProblem(**counts, head_dim=shape[-1], dtype=dtype)
    return planned(problem, runtime.get(ordinal).props)


def _axes(layout: str) -> tuple[str, ...]:
    """Axes of o except the last."""
    name = scalars.word("layout", layout)
    if name not in _LAYOUTS:
        raise ValueError(f"layout={name!r} must be one of {tuple(_LAYOUTS)}")
    return "part", *_LAYOUTS[name]


# -- runs ------------------------------------------------------------------------------------------


class MergePlan(RunnablePlan[MergeProblem]):
    """A plan that can be run. Made by `plan_merge_state`; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = _RESULTS
    result_labels: ClassVar[tuple[str, ...]] = _RESULTS
    default_variant: ClassVar[str] = "bshd"

    def operands(self, variant: str) -> Specs:
        """o, lse, out and lse_out; `variant` is the layout."""
        p = self.problem
        sizes = {axis: getattr(p, name) for axis, name in _SIZES.items()}
        return _specs(sizes, p.head_dim, as_dtype(p.dtype), variant)

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """The address and strides, in elements and for o and out also in 16 bytes; or 0."""
        axes = spec.axes if spec.name in _OF_ROWS else (*spec.axes, "seq")
        steps = {
            axis: step if length > 1 else 0
            for axis, step, length in zip(axes, view.strides, view.shape, strict=False)
        }
        if spec.name in _OF_ROWS:
            multiple = STRIDE_BYTES // spec.dtype.itemsize
            steps |= {in_bytes(axis): step // multiple for axis, step in steps.items()}
        return Operand(view.address, steps)

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """Why the kernel's loads and stores cannot take the address or strides of an operand.

        For o and out they have 16 bytes; strides are 32-bit numbers.
        """
        of_rows = spec.name in _OF_ROWS
        align = STRIDE_BYTES if of_rows else spec.dtype.itemsize
        if operand.address % align:
            return f"address {operand.address:#x}, which must be a multiple of {align} bytes"
        multiple = align // spec.dtype.itemsize
        least, most = (multiple * end for end in self._strides)
        for axis in spec.axes:
            step = operand.strides[axis]
            if step % multiple:
                return f"{axis} stride {step}, which must be a multiple of {multiple} elements"
            if not least <= step <= most:
                return f"{axis} stride {step}, which must be in {least}..{most} elements"
        return ""

    @functools.cached_property
    def _strides(self) -> tuple[int, int]:
        least, most = self.launches[0].kernel.accepts["strides"]
        return least, most

    def run(
        self,
        o: Any,
        lse: Any,
        *,
        layout: str = "bshd",
        out: Any = None,
        lse_out: Any = None,
        stream: Any = None,
    ) -> tuple[Any, Any]:
        """Run the plan on arrays of its shape; parameters and results as `merge_state`."""
        _axes(layout)
        views, handle = self.views_of({"o": o, "lse": lse}, stream)
        results = self.execute(o, views, (out, lse_out), layout, handle)
        return results[0], results[1]


def _specs(sizes: dict[str, int], head_dim: int, dtype: DType, layout: str) -> Specs:
    """The required shape and type of each operand; `sizes` are by axis."""
    axes, of_lse = _axes(layout), ("part", *_OF_LSE)
    rows = *(sizes[axis] for axis in axes), head_dim
    sums = *(sizes[axis] for axis in of_lse), sizes["seq"]
    specs = (
        OperandSpec("o", "in", rows, dtype, axes, layout=layout),
        OperandSpec("lse", "in", sums, FLOAT32, of_lse, layout="num_parts, batch, heads, seqlen"),
        OperandSpec("out", "out", rows[1:], dtype, axes[1:], layout=layout),
        OperandSpec("lse_out", "out", sums[1:], FLOAT32, _OF_LSE, layout="batch, heads, seqlen"),
    )
    return {spec.name: spec for spec in specs}


def _of_nothing(
    kind: Any, views: tuple[View, View], given: tuple[Any, Any], layout: str, stream: int
) -> tuple[Any, Any]:
    """Results without elements, after the same checks."""
    o, lse = views
    sizes = dict(zip(_axes(layout), o.shape, strict=False))
    specs = _specs(sizes, o.shape[-1], o.dtype, layout)
    named, results = {"o": o, "lse": lse}, []
    for name, array in zip(_RESULTS, given, strict=True):
        spec = specs[name]
        if array is not None:
            named[name] = output_view(array, name, stream)
            results.append(array)
        elif o.on_device:
            results.append(to_library_of(kind, empty(spec.shape, spec.dtype.name, o.ordinal)))
        else:
            results.append(to_library_of(kind, host_empty(spec.shape, spec.dtype)))
    check_placement(named)
    for name, view in named.items():
        check_shape(view, name, specs[name].shape, specs[name].dtype.name, specs[name].layout)
        if name in _RESULTS and view.read_only:
            raise ValueError(f"{name} is read-only")
    return results[0], results[1]


planned = planner(planning, MergePlan)
