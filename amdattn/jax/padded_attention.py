"""Attention on sequences that are padded to one length, and whose lengths only the device knows.

It is computed as attention on packed sequences of several lengths. Padding forms sequences of its
own: queries without keys, whose results are 0, and keys without queries.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.jax import attention_gradients, attention_rules
from amdattn.jax.primitive import called
from amdattn.jax.rules import Arrays, Axes, Rules, rules
from amdattn.op.spec import OperandSpec
from amdattn.ops.attention.problem import AttentionProblem, axis_order
from amdattn.ops.attention_backward.problem import BackwardProblem

_INT32 = as_dtype("int32")
_LENGTHS = ("query_lengths", "key_lengths")


@dataclasses.dataclass(frozen=True)
class PaddedProblem:
    """Attention of `problem.batch` sequences of at most `problem.seqlen_q` queries.

    Attributes
    ----------
    problem : AttentionProblem
        The problem of the padded sequences, with masks aligned at the top left.
    query_lengths, key_lengths : bool
        Which of the two arrays of lengths are given.
    """

    problem: AttentionProblem
    query_lengths: bool
    key_lengths: bool

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        return f"{self.problem.brief} padded"


def _specs(padded: PaddedProblem, variant: str) -> dict[str, OperandSpec]:
    p, order = padded.problem, axis_order("bshd")
    element = as_dtype(p.dtype)
    specs = (
        *(OperandSpec(name, "in", p.shape(name, "bshd"), element, order) for name in "qkv"),
        *(
            OperandSpec(name, "in", (p.batch,), _INT32, (), present=getattr(padded, name))
            for name in _LENGTHS
        ),
        OperandSpec("o", "out", p.shape("o", "bshd"), element, order, "out"),
        OperandSpec(
            *("lse", "out", p.shape("lse", "bshd"), FLOAT32, ("batch", "head")),
            present=p.return_lse,
        ),
    )
    return {spec.name: spec for spec in specs}


def _axes(padded: PaddedProblem, variant: str) -> dict[str, Axes]:
    of_lengths: Axes = (("batch",),)
    return {
        **rules("attention").axes(padded.problem, "bshd"),
        **dict.fromkeys(_LENGTHS, of_lengths),
    }


def _resized(padded: PaddedProblem, factors: Mapping[str, int]) -> PaddedProblem:
    return dataclasses.replace(padded, problem=attention_rules.resized(padded.problem, factors))


def _compute(padded: PaddedProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    from amdattn.jax.primitive import call  # here, because it imports the rules in turn

    problem, flat, sums = _as_several_lengths(padded, inputs)
    results = dict(zip(("o", "lse"), call("attention", problem, "thd", *flat, *sums), strict=False))
    return _padded_results(padded, results)


def _as_several_lengths(
    padded: PaddedProblem, inputs: Arrays
) -> tuple[AttentionProblem, list[jax.Array], tuple[jax.Array, jax.Array]]:
    """The packed problem; q, k and v without the batch axis; and cumulative lengths."""
    p = padded.problem
    whole = {"query_lengths": p.seqlen_q, "key_lengths": p.seqlen_kv}
    queries, keys = (
        jnp.clip(inputs[name], 0, most) if name in inputs else jnp.full(p.batch, most, jnp.int32)
        for name, most in whole.items()
    )
    nothing = jnp.zeros_like(queries)
    # The parts of each padded sequence: itself, its queries beyond the end, its keys beyond it.
    parts_q, parts_k = [queries], [keys]
    if padded.query_lengths:
        parts_q.append(p.seqlen_q - queries)
        parts_k.append(nothing)
    if padded.key_lengths:
        parts_q.append(nothing)
        parts_k.append(p.seqlen_kv - keys)
    flat = [_flat(inputs[name]) for name in "qkv"]
    problem = dataclasses.replace(
        p,
        batch=p.batch * len(parts_q),
        total_q=p.batch * p.seqlen_q,
        total_kv=p.batch * p.seqlen_kv,
    )
    return problem, flat, (_sums(parts_q), _sums(parts_k))


def _flat(x: jax.Array) -> jax.Array:
    """Merge the batch axis into the rows."""
    return x.reshape(-1, *x.shape[2:])


def _sums(parts: list[jax.Array]) -> jax.Array:
    counts = jnp.stack(parts, axis=1).reshape(-1)
    return jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(counts, dtype=jnp.int32)])


def _padded_results(padded: PaddedProblem, results: Arrays) -> dict[str, jax.Array]:
    p = padded.problem
    found = {"o": results["o"].reshape(p.shape("o", "bshd"))}
    if p.return_lse:
        lse = results["lse"].reshape(p.num_heads_q, p.batch, p.seqlen_q)
        found["lse"] = lse.swapaxes(0, 1)
    return found


def _reference(padded: PaddedProblem, variant: str, inputs: Arrays) -> dict[str, jax.Array]:
    problem, flat, sums = _as_several_lengths(padded, inputs)
    names = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv")
    reference = rules("attention").reference
    assert reference is not None
    results = reference(problem, "thd", dict(zip(names, (*flat, *sums), strict=True)))
    return _padded_results(padded, results)


def _lengths(padded: PaddedProblem) -> dict[str, int]:
    return attention_rules.lengths(padded.problem)


# -- gradients -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PaddedBackwardProblem:
    """Gradients of padded attention.

    Attributes
    ----------
    padded : PaddedProblem
    dlse : bool
        Whether there is a gradient of lse.
    """

    padded: PaddedProblem
    dlse: bool

    @property
    def backward(self) -> BackwardProblem:
        """The problem of the gradients without padding."""
        return attention_gradients.backward_of(
            dataclasses.replace(self.padded.problem, return_lse=self.dlse)
        )

    @property
    def brief(self) -> str:
        """Sizes, and what differs from the defaults."""
        return f"{self.padded.brief}{' dlse' * self.dlse}"


def _saving(padded: PaddedProblem) -> PaddedProblem:
    return dataclasses.replace(padded, problem=attention_gradients.saving(padded.problem))


def _gradients(
    padded: PaddedProblem, variant: str, inputs: Arrays, results: Arrays, of_results: Arrays
) -> dict[str, jax.Array]:
    backward = PaddedBackwardProblem(padded, padded.problem.return_lse)
    named = attention_gradients.operands(inputs, results, of_results)
    found = called("padded_attention_backward", backward, variant, named)
    return attention_gradients.by_input(found)


def _specs_of_gradients(problem: PaddedBackwardProblem, variant: str) -> dict[str, OperandSpec]:
    specs = rules("attention_backward").specs(problem.backward, "bshd")
    of_lengths = {
        name: spec for name, spec in _specs(problem.padded, variant).items() if name in _LENGTHS
    }
    made = {name: spec for name, spec in specs.items() if spec.role == "out"}
    return {
        **{name: spec for name, spec in specs.items() if name not in made},
        **of_lengths,
        **made,
    }


def _axes_of_gradients(problem: PaddedBackwardProblem, variant: str) -> dict[str, Axes]:
    return {
        **_axes(problem.padded, variant),
        **rules("attention_backward").axes(problem.backward, "bshd"),
    }


def _computed_gradients(
    problem: PaddedBackwardProblem, variant: str, inputs: Arrays
) -> dict[str, jax.Array]:
    several, flat, sums = _as_several_lengths(problem.padded, inputs)
    named = dict(zip(("q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv"), (*flat, *sums), strict=True))
    named |= {name: _flat(inputs[name]) for name in ("dout", "o")}
    of_lse = ("lse", "dlse") if problem.dlse else ("lse",)
    for name in of_lse:
        named[name] = inputs[name].swapaxes(0, 1).reshape(inputs[name].shape[1], -1)
    backward = attention_gradients.backward_of(
        dataclasses.replace(several, return_lse=problem.dlse)
    )
    found = called("attention_backward", backward, "thd", named)
    return {
        name: found[name].reshape(inputs[of].shape)
        for name, of in (("dq", "q"), ("dk", "k"), ("dv", "v"))
    }


RULES: dict[str, Rules] = {
    "padded_attention": Rules(
        specs=_specs,
        axes=_axes,
        independent=("batch", "num_heads_kv"),
        lengths=_lengths,
        resized=_resized,
        reference=_reference,
        compute=_compute,
        saving=_saving,
        gradients=_gradients,
    ),
    "padded_attention_backward": Rules(
        specs=_specs_of_gradients,
        axes=_axes_of_gradients,
        independent=("batch", "num_heads_kv"),
        lengths=lambda problem: _lengths(problem.padded),
        resized=lambda problem, factors: dataclasses.replace(
            problem, padded=_resized(problem.padded, factors)
        ),
        compute=_computed_gradients,
    ),
}
