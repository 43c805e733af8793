"""Options of commands for gradients of attention: those of attention, and a few more."""

from __future__ import annotations

from typing import Any

from amdattn.op.options import Option
from amdattn.ops.attention import command_options as attention
from amdattn.ops.attention_backward.problem import BackwardProblem

_NOT_OF_GRADIENTS = ("round_mode", "num_splits", "lse", "gather")  # absent, or another meaning
OPTIONS = (
    *(option for option in attention.OPTIONS if option.name not in _NOT_OF_GRADIENTS),
    Option("out_dtype", str, "", "Element type of dq, dk and dv: float32; default: dtype."),
    Option("num_splits", int, 0, "Workgroups per block of keys; 0: the plan chooses."),
    Option(
        *("deterministic", bool, False, "Give the same bits every time.", ("--deterministic",)),
    ),
)


def problem_of(*, out_dtype: str, deterministic: bool, **options: Any) -> BackwardProblem:
    """The problem with these values of OPTIONS."""
    forward = attention.problem_of(lse=False, **options)
    return BackwardProblem(forward, out_dtype, deterministic)
