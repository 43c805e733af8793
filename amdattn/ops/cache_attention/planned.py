"""Plans of attention over a cache, each of which is made once."""

from __future__ import annotations

import functools
from types import MappingProxyType
from typing import Any

from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.device import manifest, runtime
from amdattn.errors import UnsupportedDeviceError, UnsupportedProblem
from amdattn.op.choices import fastest
from amdattn.op.signatures import rest_as
from amdattn.op.support import Support, all_allowed
from amdattn.ops.attention.dense import plan_attention
from amdattn.ops.cache_attention import cascade_planning, decode_planning, prefill_planning
from amdattn.ops.cache_attention.calls import CacheKey, problem_of
from amdattn.ops.cache_attention.cascade_plan import CascadePlan
from amdattn.ops.cache_attention.cascade_problem import CascadeProblem
from amdattn.ops.cache_attention.decode_plan import DecodePlan
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import MOST_QUERIES
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

_PLANNERS: dict[type, tuple[Any, Any]] = {
    DecodeProblem: (decode_planning, DecodePlan),
    PrefillProblem: (prefill_planning, PrefillPlan),
    CascadeProblem: (cascade_planning, CascadePlan),
}


@functools.lru_cache(maxsize=1024)
def planned(problem: Any, props: DeviceProps) -> Any:
    """The plan of a problem on a device."""
    planner, kind = _PLANNERS[type(problem)]
    found = planner.choices(problem, props, manifest.kernels())
    found.require(props)
    return kind.of(planner.build(problem, props, fastest(found.items), found))


@functools.lru_cache(maxsize=1024, typed=True)
def planned_for(
    ordinal: int, key: CacheKey, of_prefix: tuple[int, int] | None = None, copies: str = ""
) -> Any:
    """The plan of a call on the device with an ordinal, with the keys and pages of a prefix."""
    props = runtime.get(ordinal).props
    own = problem_of(key, props.architecture.fp8, copies)
    if of_prefix is None:
        return planned(own, props)
    of_q = "" if isinstance(own, PrefillProblem) else copies
    return planned(CascadeProblem(own, *of_prefix, key.return_lse, of_q), props)


@rest_as(plan_attention)
def plan_decode(*sizes: Any, device: DeviceProps | str, **options: Any) -> DecodePlan:
    """Plan a call of `flash_attn_with_kvcache`. No device is queried or bound.

    Parameters
    ----------
    batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim : int
        `seqlen_kv` is the greatest length: rows of the cache, or of all pages of a sequence.
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        The other parameters of `DecodeProblem`: head_dim_v, dtype, causal, seqlen_new, ...

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    plan: DecodePlan = planned(DecodeProblem(*sizes, **options), as_device_props(device))
    return plan


@rest_as(plan_decode)
def supports_decode(*sizes: Any, device: DeviceProps | str, **options: Any) -> Support:
    """Whether a kernel exists for a well-formed problem; parameters are those of `plan_decode`.

    Returns
    -------
    Support
        True as a condition if `ok`. Otherwise `reason` says why, and `nearest` which arguments to
        change.
    """
    problem, props = DecodeProblem(*sizes, **options), as_device_props(device)
    try:
        found = decode_planning.choices(problem, props, manifest.kernels())
    except UnsupportedDeviceError as error:
        return Support(False, str(error))
    try:
        found.require(props)
    except UnsupportedProblem as error:
        wrong = all_allowed(found.rejected[0][1], [others for _, others in found.rejected])
        nearest = {mismatch.argument: mismatch.nearest for mismatch in wrong}
        return Support(False, str(error), MappingProxyType(nearest))
    return Support(True, f"kernel {fastest(found.items).kernel.name}")


@rest_as(plan_decode)
def plan_prefill(*sizes: Any, device: DeviceProps | str, **options: Any) -> PrefillPlan:
    """Plan attention of chunks of queries over a cache.

    `flash_attn_with_kvcache` runs such plans for more than 16 queries per sequence, and
    `flash_attn_varlen_func` with a block table those with `total_q`. Other parameters and errors
    are those of `plan_decode`.

    Parameters
    ----------
    **options
        The other parameters of `PrefillProblem`: causal, seqlen_new, page_size, cache_seqlens,
        total_q, max_seqlen_kv, max_total_kv, copies, ...
    """
    plan: PrefillPlan = planned(PrefillProblem(*sizes, **options), as_device_props(device))
    return plan


@rest_as(plan_decode)
def plan_cascade(
    batch: int,
    seqlen_q: int,
    *sizes: Any,
    prefix_len: int,
    device: DeviceProps | str,
    prefix_pages: int = 0,
    return_lse: bool = False,
    **options: Any,
) -> CascadePlan:
    """Plan a call of `cascade_attention`; other parameters and errors are those of `plan_decode`.

    Parameters
    ----------
    seqlen_kv : int
        The greatest number of own keys.
    prefix_len, prefix_pages : int
        Keys of the prefix, and the pages that hold it; 0: it has separate arrays.
    **options
        The other parameters of `DecodeProblem`, or of `PrefillProblem` for more than 16 queries.
    """
    kind: Any = PrefillProblem if seqlen_q > MOST_QUERIES else DecodeProblem
    own = kind(batch, seqlen_q, *sizes, **options)
    problem = CascadeProblem(own, prefix_len, prefix_pages, return_lse)
    plan: CascadePlan = planned(problem, as_device_props(device))
    return plan
