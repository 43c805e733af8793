"""What JAX's transformations need to know about an operation in addition to its declaration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax

from amdattn.jax.encoding import Signature
from amdattn.ops import registry

# Axes of an operand, outermost first; each as the factors whose product is its length.
Axes = tuple[tuple[str, ...], ...]
Arrays = Mapping[str, jax.Array]


@dataclass(frozen=True, slots=True)
class Rules:
    """How an operation is vectorised, partitioned and differentiated.

    Attributes
    ----------
    specs : callable
        ``(problem, variant)`` -> the operands by name.
    axes : callable
        ``(problem, variant)`` -> the factors of the axes of every operand. An axis that several
        operands share is one factor.
    independent : tuple of str
        Factors along which results of parts are parts of the result. `vmap` lengthens one of them,
        preferably the first, and meshes cut them.
    lengths : callable
        ``(problem)`` -> the length of every factor.
    resized : callable
        ``(problem, factors)`` -> the problem with other lengths of the given factors.
    reference : callable
        ``(problem, variant, inputs)`` -> results in float32, or in the inputs' types, in plain jnp;
        `implementation_backward="xla"` differentiates it. None: cannot be differentiated.
    compute : callable
        ``(problem, variant, inputs)`` -> results by name, in terms of other operations; None: the
        operation has kernels.
    saving : callable
        ``(problem)`` -> the problem that also yields the results that `gradients` needs, after
        those of `problem`.
    kept : callable
        ``(problem)`` -> names of the inputs and results that `gradients` reads; None: all of them.
    gradients : callable
        ``(problem, variant, inputs, results, gradients)`` -> gradients of the inputs by name, from
        those of all results by name, in terms of other operations; None: there are no kernels.
    """

    specs: Callable[[Any, str], Any]
    axes: Callable[[Any, str], Mapping[str, Axes]]
    independent: tuple[str, ...]
    lengths: Callable[[Any], Mapping[str, int]]
    resized: Callable[[Any, Mapping[str, int]], Any]
    reference: Callable[[Any, str, Arrays], Arrays] | None = None
    compute: Callable[[Any, str, Arrays], Arrays] | None = None
    saving: Callable[[Any], Any] = lambda problem: problem
    kept: Callable[[Any], frozenset[str]] | None = None
    gradients: Callable[[Any, str, Arrays, Arrays, Arrays], Arrays] | None = None

    def signature(self, problem: Any, variant: str) -> Signature:
        """The operands in XLA's order."""
        return Signature.of(self.specs(problem, variant))

    def separable(self, problem: Any, variant: str) -> tuple[str, ...]:
        """The independent factors that every result has.

        If all parts write a result in place, such as the pages of a cache, no part of it is the
        result of one part.
        """
        axes = self.axes(problem, variant)
        results = [axes[spec.name] for spec in self.signature(problem, variant).results]
        return tuple(
            factor
            for factor in self.independent
            if all(any(each[:1] == (factor,) for each in result) for result in results)
        )


def specs_of(operation: str) -> Callable[[Any, str], Any]:
    """A function that returns the specs of an operation's operands by problem and variant."""
    return lambda problem, variant: registry.operation(operation).specs(problem, variant)


# Operation -> module with its RULES.
_HOME = {
    "attention": "amdattn.jax.attention_rules",
    "attention_backward": "amdattn.jax.attention_gradients",
    "padded_attention": "amdattn.jax.padded_attention",
    "padded_attention_backward": "amdattn.jax.padded_attention",
    "gated_activation": "amdattn.jax.elementwise_rules",
    "embedding": "amdattn.jax.elementwise_rules",
    "rotary": "amdattn.jax.elementwise_rules",
    "sample": "amdattn.jax.sample_rules",
    "gemm": "amdattn.jax.product_rules",
    "layer_norm": "amdattn.jax.layer_norm_rules",
    "layer_norm_backward": "amdattn.jax.layer_norm_rules",
    "rms_norm": "amdattn.jax.norm_rules",
    "rms_norm_backward": "amdattn.jax.norm_rules",
    "merge_state": "amdattn.jax.merge_rules",
    "decode": "amdattn.jax.decode_rules",
    "prefill": "amdattn.jax.decode_rules",
    "quantize_fp8": "amdattn.jax.quantize_rules",
}


@functools.cache
def rules(operation: str) -> Rules:
    """The rules of an operation; the default ones neither fold batch axes nor cut anything."""
    if operation in _HOME:
        found: Rules = import_module(_HOME[operation]).RULES[operation]
        return found
    specs = specs_of(operation)

    def axes(problem: Any, variant: str) -> dict[str, Axes]:
        return {
            name: tuple((f"{name}{i}",) for i in range(len(spec.shape)))
            for name, spec in specs(problem, variant).items()
        }

    return Rules(specs, axes, (), lambda problem: {}, lambda problem, factors: problem)
