"""Runs a call of attention: reads options, finds the plan, and handles empty arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amdattn import scalars
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.op.colocation import view_colocated
from amdattn.op.zero_operands import one_zero_row
from amdattn.ops.attention import empty
from amdattn.ops.attention.options import Arguments, is_window, options_of, read
from amdattn.ops.attention.plans import planned_for
from amdattn.ops.attention.problem import VARLEN_LAYOUT, operand_axes


def run(
    like: Any,
    views: tuple[View, ...],
    layout: str,
    asked: Arguments,
    stream: int,
    lengths: tuple[View, ...] = (),
    longest: tuple[int, int] = (0, 0),
) -> Any:
    """Plan and run a call.

    Parameters
    ----------
    like : array
        New results are arrays of the same library.
    views : tuple of View
        q, k and v.
    lengths, longest
        For sequences of several lengths: cumulative lengths of q and k as int32 views, and the
        greatest lengths.
    """
    flags = asked.deterministic, asked.return_lse, asked.return_attn_probs
    if asked.alibi_slopes is not None or not (
        type(flags[0]) is type(flags[1]) is type(flags[2]) is bool
    ):
        asked = asked.read_flags()
    options, with_lse = options_of(asked), asked.with_lse
    q, k, v = views
    inputs = views
    if asked.sinks is not None:
        inputs = *views, view_colocated(asked.sinks, "sinks", q.ordinal, stream)
    ordinal = q.ordinal
    if ordinal is None:
        ordinal = runtime.get().ordinal
    of_arrays = layout, q.dtype.name, with_lse, asked.sinks is not None
    batch = lengths[0].shape[0] - 1 if lengths else 0
    try:
        if not is_window(asked.window_size):  # of which a look-up tells no types
            raise TypeError
        plan = planned_for(
            ordinal, "", q.shape, k.shape, v.shape, *of_arrays, batch, longest, *options
        )
    except (TypeError, ValueError):
        if type(layout) is not str or not asked.options.are_plain:
            layout = scalars.word("layout", layout)
            asked = asked._replace(**read(asked.options))
        elif layout == VARLEN_LAYOUT and q.shape[0] and batch and 0 in k.shape:
            views = q, one_zero_row(k), one_zero_row(v)  # which are of no sequence
        elif 0 in q.shape or 0 in k.shape or (lengths and batch == 0):
            shapes = lifted([view.shape for view in views], lengths, layout)
            batch = max(1, batch) if lengths else 0
            planned_for(ordinal, "", *shapes, *of_arrays, batch, longest, *options)
            named = dict(zip(("q", "k", "v", "sinks"), inputs, strict=False))
            given = asked.out, asked.lse
            found = empty.results(like, named, given, with_lse, layout, stream)
            if asked.return_attn_probs:
                return (*found, None)
            return found if with_lse else found[0]
        else:
            raise
        return run(like, views, layout, asked, stream, lengths, longest)
    if gather := plan.to_gather(k, v, layout):
        plan = planned_for(
            ordinal, gather, q.shape, k.shape, v.shape, *of_arrays, batch, longest, *options
        )
    result = plan.run_on_views(like, inputs + lengths, asked.out, asked.lse, layout, stream)
    return (*result, None) if asked.return_attn_probs else result


def lifted(
    shapes: Sequence[tuple[int, ...]], lengths: tuple[View, ...], layout: str
) -> tuple[tuple[int, ...], ...]:
    """Shapes of q, k and v with empty axes lifted to 1, after checking that they agree.

    The last axis is not lifted, because no kernel supports an empty head dimension.
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
