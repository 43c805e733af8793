"""Gradients by kernels, where there are some, or by recomputation in float32."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp

from amdattn.errors import UnsupportedProblem
from amdattn.jax.manual_axes import aligned
from amdattn.jax.primitive import REVERSE_ONLY, call
from amdattn.jax.rules import rules

BACKWARDS = (None, "xla")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def differentiable(function: _Function) -> _Function:
    """Decorate a public function that uses `apply`: forward mode raises UnsupportedProblem.

    Under an enclosing `jax.jit` the derivative fails only when the whole program is compiled, and
    then with JAX's message.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if "custom_vjp" in str(error):
                raise UnsupportedProblem(f"{function.__name__} {REVERSE_ONLY}") from None
            raise

    return cast(_Function, wrapper)


def apply(
    operation: str, problem: Any, variant: str, backward: str | None, *inputs: Any
) -> tuple[jax.Array, ...]:
    """Results of an operation, which are differentiated as `backward` (in BACKWARDS) says."""
    results: tuple[jax.Array, ...] = _apply(
        operation, problem, variant, backward, *aligned(*inputs)
    )
    return results


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2, 3))
def _apply(
    operation: str, problem: Any, variant: str, backward: str | None, *inputs: Any
) -> tuple[jax.Array, ...]:
    return tuple(call(operation, problem, variant, *inputs))


def check(backward: str | None) -> str | None:
    """Return `implementation_backward` of a public function if it is one of BACKWARDS."""
    if backward not in BACKWARDS:
        raise ValueError(f"implementation_backward={backward!r} must be one of {BACKWARDS}")
    return backward


def _forward(operation: str, problem: Any, variant: str, backward: str | None, *inputs: Any) -> Any:
    of = rules(operation)
    if of.reference is None:
        raise UnsupportedProblem(f"{operation} cannot be differentiated")
    if backward is not None:
        return tuple(call(operation, problem, variant, *inputs)), (inputs, ())
    if of.gradients is None:
        raise UnsupportedProblem(
            f'{operation} has no backward kernel yet; implementation_backward="xla" recomputes '
            "in float32, in plain XLA, what its gradient needs"
        )
    saving = of.saving(problem)
    results = tuple(call(operation, saving, variant, *inputs))
    asked, all_of = of.signature(problem, variant), of.signature(saving, variant)

    def kept(specs: Any, arrays: Any) -> tuple[Any, ...]:
        if of.kept is None:
            return tuple(arrays)
        names = of.kept(problem)
        return tuple(
            x if spec.name in names else None for spec, x in zip(specs, arrays, strict=True)
        )

    saved = kept(asked.inputs, inputs), kept(all_of.results, results)
    return results[: len(asked.results)], saved


def _backward(
    operation: str, problem: Any, variant: str, backward: str | None, saved: Any, gradients: Any
) -> tuple[Any, ...]:
    inputs, results = saved
    if backward is not None:
        return _recomputed(operation, problem, variant, inputs, gradients)
    of = rules(operation)
    assert of.gradients is not None
    asked = of.signature(problem, variant)
    names = [spec.name for spec in asked.inputs]
    kept = of.signature(of.saving(problem), variant).results
    found = of.gradients(
        *(problem, variant, dict(zip(names, inputs, strict=True))),
        {spec.name: x for spec, x in zip(kept, results, strict=True)},
        {spec.name: x for spec, x in zip(asked.results, gradients, strict=True)},
    )
    return tuple(found.get(name) for name in names)


def _recomputed(
    operation: str, problem: Any, variant: str, inputs: Any, gradients: Any
) -> tuple[Any, ...]:
    """Gradients by XLA, which recomputes the operation in float32."""
    of = rules(operation)
    signature = of.signature(problem, variant)
    names = [spec.name for spec in signature.inputs]
    is_number = [jnp.issubdtype(x.dtype, jnp.inexact) for x in inputs]

    def results(*numbers: Any) -> tuple[Any, ...]:
        each = iter(numbers)
        given = {
            name: next(each) if number else x
            for name, number, x in zip(names, is_number, inputs, strict=True)
        }
        assert of.reference is not None
        found = of.reference(problem, variant, given)
        return tuple(found[spec.name] for spec in signature.results)

    numbers = [x for x, number in zip(inputs, is_number, strict=True) if number]
    _, transposed = jax.vjp(results, *numbers)
    found = iter(transposed(tuple(gradients)))
    return tuple(next(found) if number else None for number in is_number)


_apply.defvjp(_forward, _backward)
