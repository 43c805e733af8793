"""Rows of a table by their indices: checks, plans and runs."""

from __future__ import annotations

import functools
from typing import Any

from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.op.choices import planner
from amdattn.op.empty_results import EmptyResult, empty_results
from amdattn.op.executor import RunnablePlan
from amdattn.op.indices import private
from amdattn.op.operands import row_step
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.cache_attention.indices import IndexCheck
from amdattn.ops.embedding import planning
from amdattn.ops.embedding.problem import EmbeddingProblem
from amdattn.scalars import INT32_MAX, INT32_MIN


def embedding(table: Any, indices: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Gather rows of a table: ``table[indices]``.

    Parameters
    ----------
    table : array, bfloat16, float16 or float32, (rows, columns)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the device, rows may
        lie at any distance, and the elements of a row lie next to each other.
    indices : array, int32 or int64, (...), or a list
        Numbers in 0..rows - 1. They are copied to the device if the table is there and they are
        not.
    out : array, like table, (..., columns), optional
        Results are written here instead of to a new array; it shares no memory with the others.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream. Calls on device arrays return
        before the kernel has finished, calls on host arrays after the result is copied back.

    Returns
    -------
    array, like table, (..., columns)

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input, such as an index on the host that is out of range. Nothing was launched. An
        index on the device that is out of range makes its row NaN, and checked mode reports it.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    handle = runtime.stream_handle(stream)
    view = as_view(table, "table", handle)
    if len(view.shape) != 2:
        raise ValueError(f"table has shape {view.shape}; it must have 2 dimensions")
    indices = private(indices, "indices")
    shape = as_view(indices, "indices", handle).shape
    if not shape:
        raise ValueError("indices have shape (); they must have at least 1 dimension")
    rows, columns = view.shape
    if 0 in shape or columns == 0:
        result = EmptyResult(out, (*shape, columns), view.dtype, _LAYOUT)
        return empty_results(table, {"table": view}, {"out": result}, handle)[0]
    if rows == 0:
        raise ValueError(f"table has shape {view.shape}: it has no row for any index")
    ordinal = runtime.get(view.ordinal).ordinal
    plan = _planned_for(ordinal, shape, columns, rows, view.dtype.name)
    read = plan.specs()["indices"].host_check
    assert read is not None
    views = view, read(indices, "indices", view.ordinal, handle)
    return plan.execute(table, views, (out,), "", handle)[0]


_LAYOUT = "those of indices, columns of the table"


def plan_embedding(
    rows: int, columns: int, table_rows: int, *, device: DeviceProps | str, **options: Any
) -> EmbeddingPlan:
    """Plan a gathering of rows. No device is queried or bound.

    Parameters
    ----------
    rows, columns, table_rows : int
        Rows and columns of the result, and rows of the table.
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        dtype: see `EmbeddingProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    problem = EmbeddingProblem((rows,), columns, table_rows, **options)
    return planned(problem, as_device_props(device))


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(ordinal: int, *facts: Any) -> EmbeddingPlan:
    return planned(EmbeddingProblem(*facts), runtime.get(ordinal).props)


# -- runs ------------------------------------------------------------------------------------------


class EmbeddingPlan(RunnablePlan[EmbeddingProblem]):
    """A plan that can be run. Made by `plan_embedding`; see `Plan` for what it holds."""

    def operands(self, variant: str) -> Specs:
        """The table, indices and out."""
        p = self.problem
        element, axes = as_dtype(p.dtype), tuple(map(str, range(len(p.shape))))
        check = IndexCheck(p.shape, p.table_rows - 1, f"since table has {p.table_rows} rows")
        specs = (
            OperandSpec("table", "in", (p.table_rows, p.columns), element, ("row",)),
            OperandSpec(
                *("indices", "in", p.shape, as_dtype("int32"), axes[:-1]),
                host_check=check,
                typical=functools.partial(_spread, p.shape, p.table_rows),
            ),
            OperandSpec("out", "out", (*p.shape, p.columns), element, axes, layout=_LAYOUT),
        )
        return {spec.name: spec for spec in specs}

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """The address and the distance of rows, or None if rows have several distances."""
        if spec.name == "indices":
            apart = [n for n, length in zip(view.strides, view.shape, strict=True) if length > 1]
            own = compact_strides(view.shape)
            wanted = [n for n, length in zip(own, view.shape, strict=True) if length > 1]
            return Operand(view.address, {"row": 1} if apart == wanted else {})
        step = row_step(view)
        return Operand(view.address, {} if step is None else {"row": step})

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """Why an operand does not fit: distances of its rows, or gaps in indices."""
        if not operand.strides:
            return "rows at several distances, which must be at one"
        step = operand.strides["row"]
        if spec.name == "out" and not INT32_MIN <= step <= INT32_MAX:
            return f"row stride {step}, which must be in {INT32_MIN}..{INT32_MAX}"
        return ""

    def run(self, table: Any, indices: Any, *, out: Any = None, stream: Any = None) -> Any:
        """Run the plan on arrays of its shape; parameters and results as `embedding`."""
        views, handle = self.views_of({"table": table, "indices": indices}, stream)
        return self.execute(table, views, (out,), "", handle)[0]


def _spread(shape: tuple[int, ...], rows: int) -> Any:
    """Random indices into the table."""
    import numpy as np

    return np.random.default_rng(0).integers(0, rows, shape, np.int32)


planned = planner(planning, EmbeddingPlan, planning.best)
