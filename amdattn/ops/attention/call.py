"""A call of attention: options read, plan found, run; also where there is nothing to compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdattn import scalars
from amdattn.arrays.buffers import View
from amdattn.device import runtime
from amdattn.errors import UnsupportedProblem
from amdattn.op.colocation import view_colocated
from amdattn.op.zero_operands import one_zero_row
from amdattn.ops.attention import empty
from amdattn.ops.attention.execution import AttentionPlan
from amdattn.ops.attention.options import Options, is_window
from amdattn.ops.attention.plans import planned_for
from amdattn.ops.attention.problem import VARLEN_LAYOUT, operand_axes


def refuse(argument: str, value: object) -> None:
    """Raise if an argument is given for which there is nothing."""
    if value is not None:
        raise UnsupportedProblem(f"{argument} is not built (have None)")


def run(
    like: Any,
    views: tuple[View, ...],
    layout: str,
    stream: int,
    options: Options,
    *,
    out: Any,
    lse: Any,
    return_lse: bool,
    return_attn_probs: bool,
    sinks: Any,
    alibi_slopes: None,
    deterministic: bool,
    lengths: tuple[View, ...] = (),
    longest: tuple[int, int] = (0, 0),
) -> Any:
    """Plan and run a call.

    Parameters
    ----------
    like : array
        Results are of its kind.
    views : tuple of View
        q, k and v.
    lengths, longest
        Of sequences of several lengths: sums of their lengths as int32 views, and the greatest.
    """
    if alibi_slopes is not None:
        refuse("alibi_slopes", alibi_slopes)
    if not (type(deterministic) is type(return_lse) is type(return_attn_probs) is bool):
        scalars.boolean("deterministic", deterministic)
        return_lse = scalars.boolean("return_lse", return_lse)
        return_attn_probs = scalars.boolean("return_attn_probs", return_attn_probs)
    q, k, v = views
    inputs = views
    if sinks is not None:
        inputs = *views, view_colocated(sinks, "sinks", q.ordinal, stream)
    ordinal = q.ordinal
    if ordinal is None:
        ordinal = runtime.get().ordinal
    with_lse = return_lse or return_attn_probs or lse is not None
    of_arrays = layout, q.dtype.name, with_lse, sinks is not None
    batch = lengths[0].shape[0] - 1 if lengths else 0
    try:
        if not is_window(options.window_size):  # of which a look-up tells no types
            raise TypeError
        plan = planned_for(
            ordinal, "", q.shape, k.shape, v.shape, *of_arrays, batch, longest, *options
        )
    except (TypeError, ValueError):
        if type(layout) is not str or not options.are_plain:
            layout, options = scalars.word("layout", layout), options.read()
        elif layout == VARLEN_LAYOUT and q.shape[0] and batch and 0 in k.shape:
            views = q, one_zero_row(k), one_zero_row(v)  # which are of no sequence
        elif 0 in q.shape or 0 in k.shape or (lengths and batch == 0):
            shapes = lifted([view.shape for view in views], lengths, layout)
            batch = max(1, batch) if lengths else 0
            plan = planned_for(ordinal, "", *shapes, *of_arrays, batch, longest, *options)
            found = _of_nothing(plan, like, inputs, (out, lse), layout, stream)
            if return_attn_probs:
                return (*found, None)
            return found if with_lse else found[0]
        else:
            raise
        return run(
            *(like, views, layout, stream, options),
            out=out,
            lse=lse,
            return_lse=return_lse,
            return_attn_probs=return_attn_probs,
            sinks=sinks,
            alibi_slopes=alibi_slopes,
            deterministic=True,
            lengths=lengths,
            longest=longest,
        )
    if gather := plan.to_gather(k, v, layout):
        plan = planned_for(
            ordinal, gather, q.shape, k.shape, v.shape, *of_arrays, batch, longest, *options
        )
    result = plan.run_on_views(like, inputs + lengths, out, lse, layout, stream)
    return (*result, None) if return_attn_probs else result


def _of_nothing(
    plan: AttentionPlan,
    like: Any,
    inputs: tuple[View, ...],
    given: tuple[Any, Any],
    layout: str,
    stream: int,
) -> tuple[Any, Any]:
    """Results of a call without queries, or without keys; every check is made of it, too."""
    named = dict(zip(("q", "k", "v", "sinks"), inputs, strict=False))
    return empty.results(like, named, given, plan.problem.return_lse, layout, stream)


def lifted(
    shapes: Sequence[tuple[int, ...]], lengths: tuple[View, ...], layout: str
) -> tuple[tuple[int, ...], ...]:
    """Shapes of q, k and v that have an axis without elements, one in its place, once they agree.

    The last axis is left: no kernel is for heads of no dimension.
    """
    q, k, v = shapes
    of_q, of_k, _ = operand_axes(q, k, v, layout)
    if (of_q["head"] == 0) != (of_k["head"] == 0):
        raise ValueError(f"num_heads_kv={of_k['head']} must divide num_heads_q={of_q['head']}")
    if lengths and lengths[0].shape != lengths[1].shape:
        raise ValueError(
            f"cu_seqlens_k has shape {lengths[1].shape}; this call needs {lengths[0].shape}"
        )
    return tuple((*(max(1, n) for n in shape[:-1]), shape[-1]) for shape in shapes)
