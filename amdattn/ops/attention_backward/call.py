"""Runs a call for gradients: reads options, finds the plan, and handles empty arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from amdattn import scalars
from amdattn.arrays.buffers import host_empty, upload
from amdattn.arrays.interchange import as_view, to_library_of
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.errors import UnsupportedProblem
from amdattn.op.colocation import view_colocated
from amdattn.op.operands import check_output, check_placement, check_shape
from amdattn.op.outputs import output_view
from amdattn.ops.attention.call import lifted
from amdattn.ops.attention.empty import write
from amdattn.ops.attention.options import Options, is_window, refuse
from amdattn.ops.attention_backward.execution import RESULTS, BackwardPlan
from amdattn.ops.attention_backward.plans import planned_for

_INPUTS = ("dout", "q", "k", "v", "o", "lse")


class Arguments(NamedTuple):
    """Arguments of `flash_attn_backward` other than the input tensors and their layout."""

    dropout_p: float = 0.0
    softmax_scale: float | None = None
    causal: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    alibi_slopes: None = None
    deterministic: bool = False
    num_splits: int = 0
    sinks: Any = None
    dlse: Any = None
    top_left: bool = False
    out_dtype: Any = None
    dq: Any = None
    dk: Any = None
    dv: Any = None
    dsinks: Any = None
    stream: Any = None


def run(
    kind: Any,
    views: tuple[View, ...],
    layout: str,
    asked: Arguments,
    stream: int,
    lengths: tuple[View, ...] = (),
    longest: tuple[int, int] = (0, 0),
) -> tuple[Any, ...]:
    """Plan and run a call.

    Parameters
    ----------
    kind : array
        New results are arrays of the same library.
    views : tuple of View
        dout, q, k, v, out and lse.
    layout : str
    asked : Arguments
    stream : int
        The hipStream_t.
    lengths, longest
        For sequences of several lengths: cumulative lengths of q and k as int32 views, and the
        greatest lengths.
    """
    refuse("alibi_slopes", asked.alibi_slopes)
    sinks, dlse, given = asked.sinks, asked.dlse, (asked.dq, asked.dk, asked.dv, asked.dsinks)
    options = Options(
        *(asked.softmax_scale, asked.causal, asked.window_size, asked.softcap, asked.dropout_p),
        *("rtne", asked.num_splits, asked.top_left),
    )
    _, q, k, v, *_ = views
    inputs = dict(zip(_INPUTS, views, strict=True))
    if sinks is not None:
        inputs["sinks"] = view_colocated(sinks, "sinks", q.ordinal, stream)
    if dlse is not None:
        inputs["dlse"] = as_view(dlse, "dlse", stream)
    ordinal = runtime.get(q.ordinal).ordinal
    layout = scalars.word("layout", layout)
    if not options.are_plain or not is_window(options.window_size):
        options = options.read()
    wanted = asked.out_dtype
    of_gradients = (
        "" if wanted is None else as_dtype(wanted).name,
        scalars.boolean("deterministic", asked.deterministic),
        dlse is not None,
    )
    batch = lengths[0].shape[0] - 1 if lengths else 0
    shapes: tuple[tuple[int, ...], ...] = (q.shape, k.shape, v.shape)
    is_empty = 0 in q.shape[:-1] or 0 in k.shape[:-1] or bool(lengths and batch == 0)
    if is_empty:
        shapes = lifted(shapes, lengths, layout)
        batch = max(1, batch) if lengths else 0
    plan = planned_for(
        *(ordinal, *shapes, layout, q.dtype.name, of_gradients, sinks is not None),
        *(batch, longest, *options),
    )
    if is_empty:
        return _of_nothing(plan, kind, inputs, given, layout, stream)
    results = plan.execute(kind, (*inputs.values(), *lengths), given, layout, stream)
    return results if sinks is not None else results[:3]


def _of_nothing(
    plan: BackwardPlan,
    kind: Any,
    inputs: dict[str, View],
    given: tuple[Any, ...],
    layout: str,
    stream: int,
) -> tuple[Any, ...]:
    """Gradients without elements, or zeros, if there are no queries or no keys."""
    q, k, v, specs = inputs["q"], inputs["k"], inputs["v"], plan.specs(layout)
    if "sinks" in inputs and "dlse" in inputs and 0 not in q.shape:
        raise UnsupportedProblem("dlse with sinks is not built where there are no keys (have None)")
    of_rows = (*q.shape[:-1], v.shape[-1])
    lse = inputs["lse"].shape if 0 in q.shape else specs["lse"].shape
    shapes = {"dout": of_rows, "o": of_rows, "lse": lse, "dlse": lse, "q": q.shape, "k": k.shape}
    shapes |= {"v": v.shape, "dq": q.shape, "dk": k.shape, "dv": v.shape}
    views = {
        name: output_view(array, name, stream)
        for name, array in zip(RESULTS, given, strict=True)
        if array is not None
    }
    if "dsinks" in views and "sinks" not in inputs:
        raise ValueError("dsinks was given, but the call has no sinks")
    check_placement({specs[name].title: view for name, view in {**inputs, **views}.items()})
    for name, view in {**inputs, **views}.items():
        spec = specs[name]
        shape = shapes.get(name, spec.shape)
        check_shape(view, spec.title, shape, spec.dtype.name, layout)
    found: list[Any] = []
    for name, array in zip(RESULTS, given, strict=True):
        if not specs[name].present:
            continue
        zeros = host_empty(shapes.get(name, specs[name].shape), specs[name].dtype)
        zeros[...] = 0
        if array is None:
            made: Any = upload(zeros, runtime.get(q.ordinal)) if q.on_device else zeros
            found.append(to_library_of(kind, made))
            continue
        if zeros.size:
            titled = {specs[other].title: view for other, view in inputs.items()}
            check_output(name, views[name], titled)
            write(views[name], zeros, stream)
        found.append(array)
    return tuple(found)
