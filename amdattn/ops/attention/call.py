"""A call of attention: options read, plan found, run; also where there is nothing to compute."""

from __future__ import annotations

from typing import Any

from amdattn import scalars
from amdattn.arrays.buffers import View
from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from amdattn.errors import UnsupportedProblem
from amdattn.op.outputs import output_view
from amdattn.op.stand_ins import one_row
from amdattn.ops.attention import no_work, options as call_options
from amdattn.ops.attention.plans import planned_for
from amdattn.ops.attention.problem import VARLEN_LAYOUT, operand_axes


def refuse(argument: str, value: object) -> None:
    """Raise if an argument is given for which there is nothing."""
    if value is not None:
        raise UnsupportedProblem(f"{argument} is not built (have None)")


def run(
    kind: Any,
    views: tuple[View, ...],
    lengths: tuple[View, ...],
    layout: str,
    stream: int,
    results: tuple[Any, Any, bool, bool],
    sinks: Any,
    without_effect: tuple[object, object],
    options: tuple[Any, ...],
    longest: tuple[int, ...] = (),
) -> Any:
    """Plan and run a call; `options` and `longest` are the values of the last names in OPTIONS."""
    out, lse, return_lse, return_attn_probs = results
    alibi_slopes, deterministic = without_effect
    if alibi_slopes is not None:
        refuse("alibi_slopes", alibi_slopes)
    if not (type(deterministic) is type(return_lse) is type(return_attn_probs) is bool):
        scalars.boolean("deterministic", deterministic)
        return_lse = scalars.boolean("return_lse", return_lse)
        return_attn_probs = scalars.boolean("return_attn_probs", return_attn_probs)
    with_lse = return_lse or return_attn_probs or lse is not None
    inputs = views
    if sinks is not None:
        inputs = *inputs, as_view(sinks, "sinks", stream)
    facts = (
        *(views[0].shape, views[1].shape, views[2].shape, layout, views[0].dtype.name),
        *(with_lse, sinks is not None, lengths[0].shape[0] - 1 if lengths else 0),
        *options,
        *longest,
    )
    is_window = call_options.is_window(options[call_options.WINDOW])
    if (ordinal := views[0].ordinal) is None:
        ordinal = runtime.get().ordinal
    try:
        if not is_window:
            raise TypeError
        plan = planned_for(ordinal, "", *facts)
    except (TypeError, ValueError):
        results = out, lse, return_lse, return_attn_probs
        if not (is_window and call_options.are_plain((layout, *options))):
            layout, options = scalars.word("layout", layout), call_options.read(options)
        elif (
            layout == VARLEN_LAYOUT and views[0].shape[0] and facts[_BATCH] and 0 in views[1].shape
        ):
            views = views[0], one_row(views[1]), one_row(views[2])  # which are of no sequence
        elif 0 in views[0].shape or 0 in views[1].shape or (lengths and facts[_BATCH] == 0):
            found = _of_nothing(kind, inputs, lengths, facts, (out, lse), stream)
            return (*found, None) if return_attn_probs else found if with_lse else found[0]
        else:
            raise
        without_effect = alibi_slopes, deterministic
        return run(
            *(kind, views, lengths, layout, stream, results, sinks, without_effect, options),
            longest,
        )
    if gather := plan.to_gather(views[1], views[2], layout):
        plan = planned_for(ordinal, gather, *facts)
    result = plan.run_on_views(kind, inputs + lengths, out, lse, layout, stream)
    return (*result, None) if return_attn_probs else result


_SHAPES, _LAYOUT, _BATCH = 3, 3, 7  # places in the facts of a call


def _of_nothing(
    kind: Any,
    inputs: tuple[View, ...],
    lengths: tuple[View, ...],
    facts: tuple[Any, ...],
    given: tuple[Any, Any],
    stream: int,
) -> tuple[Any, Any]:
    """Results of a call without queries, or without keys; every check is made of it, too."""
    layout = facts[_LAYOUT]
    lifted = list(facts)
    lifted[:_SHAPES] = _lifted(facts[:_SHAPES], lengths, layout)
    if lengths:
        lifted[_BATCH] = max(1, lifted[_BATCH])
    plan = planned_for(runtime.get(inputs[0].ordinal).ordinal, "", *lifted)
    views = tuple(
        None if x is None else output_view(x, name, stream)
        for name, x in zip(("out", "lse"), given, strict=True)
    )
    named = dict(zip(("q", "k", "v", "sinks"), inputs, strict=False))
    return no_work.results(kind, named, given, views, plan.problem.return_lse, layout, stream)


def _lifted(
    shapes: tuple[tuple[int, ...], ...], lengths: tuple[View, ...], layout: str
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
