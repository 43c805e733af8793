"""Tokens drawn from logits: checks, plans and runs."""

from __future__ import annotations

import functools
from typing import Any

from amdattn import scalars
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.arrays.buffers import DeviceArray, upload
from amdattn.arrays.interchange import as_view, asarray, to_library_of
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.op.choices import planner
from amdattn.op.executor import RunnablePlan
from amdattn.op.operands import check_shape
from amdattn.op.outputs import output_view
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.sample import planning
from amdattn.ops.sample.problem import SampleProblem

_LAYOUT = "rows of logits"


def argmax(logits: Any, *, out: Any = None, workspace: Any = None, stream: Any = None) -> Any:
    """Return the column of the greatest logit of each row, the first one of equals.

    Parameters
    ----------
    logits : array, float32, bfloat16 or float16, (rows, columns)
        numpy (with ml_dtypes), `DeviceArray`, or an array of any library with ``__dlpack__``,
        ``__cuda_array_interface__`` or ``__array__``, on the CPU or a GPU. On the device, rows may
        lie at any distance and the elements of a row lie next to each other; on the host, strides
        are free.
    out : array, int32, (rows,), optional
    workspace : device array, optional
        ``plan_sample(...).new_workspace()``, which the workgroups of a row share. It is needed
        while a graph is captured, if the plan has one.
    stream : hipStream_t, optional
        An int or a hip-python stream; defaults to the default stream.

    Returns
    -------
    array, int32, (rows,)
        An array of the kind of `logits`. A NaN is less than every number; a row without a number
        greater than -inf gives -1.

    Raises
    ------
    UnsupportedProblem
        (a NotImplementedError and ValueError) No kernel does this; the message says what there is.
    ValueError, TypeError
        Malformed input. Nothing was launched.
    UnsupportedDeviceError, HipError
        The device is of another architecture; a HIP call failed.
    """
    return sample(logits, 0.0, out=out, workspace=workspace, stream=stream)


def sample(
    logits: Any,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    *,
    repetition_penalty: float = 1.0,
    tokens: Any = None,
    state: Any = None,
    out: Any = None,
    workspace: Any = None,
    stream: Any = None,
) -> Any:
    """Draw a token for each row from the softmax of ``logits / temperature``.

    The penalty comes first, then the temperature, and then the limits in turn: top_k, top_p and
    min_p. Tokens with equal logits are kept or dropped together.

    Parameters
    ----------
    logits : array, float32, bfloat16 or float16, (rows, columns)
        As in `argmax`.
    temperature : float
        0 takes the greatest logit, as `argmax` does.
    top_k : int
        Keeps this number of the greatest logits; 0: all.
    top_p : float
        Keeps the fewest most probable tokens whose probabilities add up to this, to 2^-20; 1: all.
    min_p : float
        Keeps tokens at least as probable as this share of the most probable one; 0: all.
    seed : int
        A seed of 64 bits: the same seed draws the same tokens from the same logits. Not allowed
        with `state`.
    repetition_penalty : float
        Divides the logits of `tokens` that are greater than 0, and multiplies the others.
    tokens : array, int32, (rows, history), optional
        Previous tokens; numbers below 0 stand for none.
    state : array, int32, (rows, 4), optional
        A seed and an offset of each row, in device memory: two words each, the lower one first, as
        in an int64 array of (rows, 2). A call adds 1 to the offset on the device, so that the
        replays of a graph draw anew. The draw of a row depends on its seed and its offset alone:
        rows with equal seeds and offsets draw alike.
    out : array, int32, (rows,), optional
    workspace : device array, optional
        As in `argmax`.
    stream : hipStream_t, optional

    Returns
    -------
    array, int32, (rows,)
        As in `argmax`. A row with an infinite logit gives its column.

    Notes
    -----
    The generator is Philox4x32-10, with the seed as its key and ``(column // 4, 0, offset)`` as its
    counter. With `seed`, the offset of a row is 2^32 times its number. The drawn token has the
    greatest sum of logarithm and Gumbel noise, so that the result depends on no order of additions.

    Raises
    ------
    UnsupportedProblem, ValueError, TypeError, UnsupportedDeviceError, HipError
        As `argmax`.
    """
    handle = runtime.stream_handle(stream)
    view = as_view(logits, "logits", handle)
    if len(view.shape) != 2 or 0 in view.shape:
        raise ValueError(f"logits has shape {view.shape}; it must be (rows, columns), neither 0")
    views = {"logits": view}
    history = 0
    if tokens is not None:
        views["tokens"] = as_view(tokens, "tokens", handle)
        history = views["tokens"].shape[-1] if len(views["tokens"].shape) == 2 else 0
        if not history or views["tokens"].shape[0] != view.shape[0]:
            raise ValueError(
                f"tokens has shape {views['tokens'].shape}; it must be ({view.shape[0]}, history)"
            )
    plan = _planned_for(
        *(runtime.get(view.ordinal).ordinal, view.shape, view.dtype.name, temperature, top_k),
        *(top_p, min_p, repetition_penalty, history),
    )
    seed = scalars.integer("seed", seed)
    if state is not None and seed:
        raise ValueError(f"seed={seed} and state were given; only one of them may be")
    if plan.problem.draws and not view.on_device:
        return _of_host(plan, logits, views, seed, state, out, workspace, handle)
    if plan.problem.draws:
        given = _of_seed(seed, view.shape[0]) if state is None else state
        views["state"] = as_view(given, "state", handle)
    (result,) = plan.execute(logits, tuple(views.values()), (out,), "", handle, workspace)
    return result


def _of_host(
    plan: SamplePlan,
    logits: Any,
    views: dict[str, View],
    seed: int,
    state: Any,
    out: Any,
    workspace: Any,
    stream: int,
) -> Any:
    """Run a call with arrays on the host on the device, where arrays written in place must be."""
    on_device = {name: as_view(asarray(view.array), name, stream) for name, view in views.items()}
    given = _of_seed(seed, plan.problem.rows) if state is None else state
    on_device["state"] = as_view(given, "state", stream)
    if not on_device["state"].on_device:
        raise TypeError("state is written in place: it must be in device memory")
    (found,) = plan.execute(given, tuple(on_device.values()), (None,), "", stream, workspace)
    if out is None:
        return to_library_of(logits, found.numpy())
    target = output_view(out, "out", stream)
    check_shape(target, "out", (plan.problem.rows,), "int32", _LAYOUT)
    if target.array is None:
        raise ValueError("out is in device memory, logits are not")
    if target.read_only:
        raise ValueError("out is read-only")
    target.array[:] = found.numpy()
    return out


def _of_seed(seed: int, rows: int) -> DeviceArray:
    """The random state of one call."""
    import numpy as np

    made = np.zeros((rows, 2), np.int64)
    made[:, 0] = np.uint64(seed % 2**64).astype(np.int64)
    made[:, 1] = np.arange(rows, dtype=np.int64) << 32
    return upload(made.view(np.int32))


def plan_sample(
    rows: int, columns: int, *, device: DeviceProps | str, **options: Any
) -> SamplePlan:
    """Plan the sampling of tokens from logits. No device is queried or bound.

    Parameters
    ----------
    rows, columns : int
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        dtype, temperature, top_k, top_p, min_p, repetition_penalty, history: see `SampleProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    return planned(SampleProblem(rows, columns, **options), as_device_props(device))


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(
    ordinal: int, shape: tuple[int, int], dtype: str, temperature: float, *options: Any
) -> SamplePlan:
    return planned(SampleProblem(*shape, dtype, temperature, *options), runtime.get(ordinal).props)


def _spread(shape: tuple[int, int], most: int) -> Any:
    """Random integers below `most`."""
    import numpy as np

    return np.random.default_rng(0).integers(0, most, shape, np.int32)


class SamplePlan(RunnablePlan[SampleProblem]):
    """A plan that can be run. Made by `plan_sample`; see `Plan` for what it holds."""

    def operands(self, variant: str) -> Specs:
        """The logits, tokens, state and out."""
        p = self.problem
        int32 = as_dtype("int32")
        specs = (
            OperandSpec("logits", "in", (p.rows, p.columns), as_dtype(p.dtype), ("row",)),
            OperandSpec(
                *("tokens", "in", (p.rows, p.history), int32, ("row",)),
                present=p.history > 0,
                condition="history",
                layout=_LAYOUT,
                typical=functools.partial(_spread, (p.rows, p.history), p.columns),
            ),
            OperandSpec(
                *("state", "inout", (p.rows, 4), int32, ("row",)),
                present=p.draws,
                condition="temperature",
                layout=_LAYOUT,
                typical=functools.partial(_spread, (p.rows, 4), 2**20),
            ),
            OperandSpec("out", "out", (p.rows,), int32, (), layout=_LAYOUT),
        )
        return {spec.name: spec for spec in specs}

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """The address and the distance of rows."""
        rows = {"row": view.strides[0] if view.shape[0] > 1 else 0} if spec.axes else {}
        return Operand(view.address, rows)

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """Why an operand does not fit: the rows of its state have gaps."""
        if spec.name == "state" and operand.strides["row"] not in (0, 4):
            return f"row stride {operand.strides['row']}, which must be 4"
        return ""

    def run(
        self,
        logits: Any,
        tokens: Any = None,
        state: Any = None,
        *,
        out: Any = None,
        workspace: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shape; parameters and result as `sample`."""
        given = {"logits": logits, "tokens": tokens, "state": state}
        views, handle = self.views_of(given, stream)
        (result,) = self.execute(logits, views, (out,), "", handle, workspace)
        return result


planned = planner(planning, SamplePlan)
