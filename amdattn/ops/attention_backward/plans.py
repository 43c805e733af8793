"""Plans of gradients of attention, each of which is made once."""

from __future__ import annotations

import functools
from typing import Any

from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.device import runtime
from amdattn.op.choices import planner
from amdattn.op.signatures import rest_as
from amdattn.ops.attention.dense import plan_attention
from amdattn.ops.attention.options import Options
from amdattn.ops.attention.problem import VARLEN_LAYOUT, AttentionProblem
from amdattn.ops.attention_backward import planning
from amdattn.ops.attention_backward.execution import BackwardPlan
from amdattn.ops.attention_backward.problem import BackwardProblem, backward_problem


@rest_as(plan_attention)
def plan_attention_backward(
    *sizes: Any,
    device: DeviceProps | str,
    out_dtype: str = "",
    deterministic: bool = False,
    dlse: bool = False,
    **options: Any,
) -> BackwardPlan:
    """Plan the gradients of an attention call. Pure: no device is queried or bound.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim, device
        As in `plan_attention`.
    out_dtype, deterministic
        As in `flash_attn_backward`.
    dlse : bool
        Whether there is a gradient of the forward's lse.
    **options
        head_dim_v, dtype, softmax_scale, causal, window_size, softcap, top_left, sinks, total_q,
        total_kv: as in `plan_attention`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    forward = AttentionProblem(*sizes, **options)
    problem = BackwardProblem(forward, out_dtype, deterministic, dlse)
    return planned(problem, as_device_props(device))


@functools.lru_cache(maxsize=1024, typed=True)
def planned_for(
    ordinal: int,
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    v_shape: tuple[int, ...],
    layout: str,
    dtype: str,
    of_gradients: tuple[str, bool, bool],
    sinks: bool,
    batch: int,
    longest: tuple[int, int],
    *options: Any,
) -> BackwardPlan:
    """The plan of a call on the device with an ordinal.

    Parameters
    ----------
    of_gradients : (str, bool, bool)
        Their element type, whether they are deterministic, and whether there is one of lse.
    batch, longest
        For sequences of several lengths; otherwise 0.
    options
        The fields of `Options` one by one, because only then does the cache distinguish types.
    """
    named: dict[str, Any] = Options(*options)._asdict()
    if layout == VARLEN_LAYOUT:
        named |= zip(("batch", "seqlen_q", "seqlen_kv"), (batch, *longest), strict=True)
    out_dtype, deterministic, dlse = of_gradients
    problem = backward_problem(
        *(q_shape, k_shape, v_shape, layout),
        out_dtype=out_dtype,
        deterministic=deterministic,
        dlse=dlse,
        dtype=dtype,
        sinks=sinks,
        **named,
    )
    return planned(problem, runtime.get(ordinal).props)


planned = planner(planning, BackwardPlan, planning.best)
