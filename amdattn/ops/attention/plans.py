"""Plans of attention calls, each of which is made once."""

from __future__ import annotations

import functools
from typing import Any

from amdattn.arch.props import DeviceProps
from amdattn.device import manifest, runtime
from amdattn.device.manifest import KernelSpec
from amdattn.op.cache import keep
from amdattn.ops.attention import planning
from amdattn.ops.attention.basis import basis
from amdattn.ops.attention.execution import AttentionPlan
from amdattn.ops.attention.options import Options
from amdattn.ops.attention.problem import (
    LAYOUTS,
    VARLEN_LAYOUT,
    AttentionProblem,
    attention_problem,
)
from amdattn.ops.attention.select import ATTENTION


@functools.lru_cache(maxsize=1024, typed=True)
def planned_for(
    ordinal: int,
    gather: str,
    q_shape: tuple[int, ...],
    k_shape: tuple[int, ...],
    v_shape: tuple[int, ...],
    layout: str,
    dtype: str,
    return_lse: bool,
    sinks: bool,
    batch: int,
    longest: tuple[int, int],
    *options: Any,
) -> AttentionPlan:
    """The plan of a call on the device with an ordinal.

    Parameters
    ----------
    batch, longest
        For sequences of several lengths; otherwise 0.
    options
        The fields of `Options` one by one, because only then does the cache distinguish types.

    Raises
    ------
    TypeError
        Also if a call must not be looked up by these values.
    """
    asked = Options(*options)
    if type(layout) is not str or not asked.are_plain:
        raise TypeError("options must be read first")
    shape = batch, *longest
    family = None
    if layout in LAYOUTS and len(k_shape) == len(v_shape) == 1 + len(LAYOUTS[layout]):
        seq = LAYOUTS[layout].index("seq")
        if k_shape[seq] == v_shape[seq]:
            rests = *k_shape[:seq], *k_shape[seq + 1 :], *v_shape[:seq], *v_shape[seq + 1 :]
            of_arrays = ordinal, gather, q_shape, rests, layout, dtype, return_lse, sinks, shape
            family = (of_arrays, asked, tuple(map(type, asked)))
            relative = _families.get(family)
            if relative is not None:
                problem, props = relative[0].with_keys(k_shape[seq]), runtime.get(ordinal).props
                return _alike(problem, props, relative[1])[0] or planned(problem, props)
    named: dict[str, Any] = asked._asdict()
    if layout == VARLEN_LAYOUT:
        if not any(longest):
            raise ValueError(f"layout={layout!r} must be one of {tuple(LAYOUTS)}")
        named |= zip(("batch", "seqlen_q", "seqlen_kv"), shape, strict=True)
    named |= {"dtype": dtype, "return_lse": return_lse, "sinks": sinks, "gather": gather}
    problem = attention_problem(q_shape, k_shape, v_shape, layout, **named)
    if family is not None:
        keep(_families, family, (problem, manifest.kernels()))
    return planned(problem, runtime.get(ordinal).props)


# A problem of each kind of call, calls that differ in the number of keys alone being of one; and of
# problems that are planned alike the first plan.
_families: dict[object, tuple[AttentionProblem, tuple[KernelSpec, ...]]] = {}
_bases: dict[object, AttentionPlan] = {}


@functools.lru_cache(maxsize=1024)
def planned(problem: AttentionProblem, props: DeviceProps) -> AttentionPlan:
    """The plan of a problem on a device."""
    rows = manifest.kernels()
    made, alike = _alike(problem, props, rows)
    if made is None:
        made = AttentionPlan.of(planning.plan_attention(problem, props, rows))
        if alike is not None:
            keep(_bases, alike, made)
    return made


def planned_with(problem: AttentionProblem, props: DeviceProps, kernel: str) -> AttentionPlan:
    """The plan with the forward kernel of this name, or with the one that planning prefers."""
    rows = [row for row in manifest.kernels() if row.op != ATTENTION or kernel in ("", row.name)]
    return AttentionPlan.of(planning.plan_attention(problem, props, rows))


def _alike(
    problem: AttentionProblem, props: DeviceProps, rows: tuple[KernelSpec, ...]
) -> tuple[AttentionPlan | None, object]:
    """The plan, if one that differs only in the number of keys is known; and the common basis."""
    of_problem = basis(problem, rows, props.arch)
    alike = None if of_problem is None else (of_problem, props)
    base = _bases.get(alike)
    return None if base is None else base.with_keys(problem), alike
