"""Gradients of attention in JAX: the operation that computes them, and its own rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax

from amdattn.jax.primitive import called
from amdattn.jax.rules import Arrays, Axes, Rules, rules, specs_of
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention_backward.problem import BackwardProblem

OPERATION = "attention_backward"
# Operands with the axes of another operand of the forward.
_AS = {"dout": "o", "dq": "q", "dk": "k", "dv": "v", "dlse": "lse", "dsinks": "sinks"}
_OF_INPUTS = {"q": "dq", "k": "dk", "v": "dv", "sinks": "dsinks"}


def saving(problem: AttentionProblem) -> AttentionProblem:
    """The problem of the forward that also returns the log-sum-exp."""
    return dataclasses.replace(problem, return_lse=True)


def backward_of(problem: AttentionProblem) -> BackwardProblem:
    """The problem of the gradients of a forward, regardless of its splits and rounding."""
    forward = dataclasses.replace(
        problem, round_mode="rtne", num_splits=0, gather="", return_lse=False
    )
    return BackwardProblem(forward, dlse=problem.return_lse)


def operands(inputs: Arrays, results: Arrays, gradients: Arrays) -> dict[str, jax.Array]:
    """The operands of the backward, by its names."""
    named = {**inputs, **results, "dout": gradients["o"]}
    return named | ({"dlse": gradients["lse"]} if "lse" in gradients else {})


def by_input(found: Arrays) -> dict[str, jax.Array]:
    """Gradients by the names of the inputs to which they belong."""
    return {name: found[of] for name, of in _OF_INPUTS.items() if of in found}


def gradients(
    problem: AttentionProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    """Gradients of q, k, v and sinks."""
    backward = backward_of(problem)
    return by_input(called(OPERATION, backward, variant, operands(inputs, results, of_results)))


# -- rules -----------------------------------------------------------------------------------------


def axes(problem: BackwardProblem, variant: str) -> dict[str, Axes]:
    """The axes of every operand."""
    forward = rules("attention").axes(problem.forward, variant)
    return {**forward, **{name: forward[of] for name, of in _AS.items()}}


def _lengths(problem: BackwardProblem) -> Mapping[str, int]:
    return rules("attention").lengths(problem.forward)


def resized(problem: BackwardProblem, factors: Mapping[str, int]) -> BackwardProblem:
    """The problem with another batch, or other KV heads with the same query heads per KV head."""
    forward = rules("attention").resized(problem.forward, factors)
    return dataclasses.replace(problem, forward=forward)


RULES = {
    OPERATION: Rules(
        specs=specs_of(OPERATION),
        axes=axes,
        independent=("batch", "num_heads_kv"),  # as for the forward
        lengths=_lengths,
        resized=resized,
    )
}
