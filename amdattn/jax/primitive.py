"""The only JAX primitive: an operation of the registry on arrays, planned when it is lowered."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import core, dispatch  # jax.extend.core imports Pallas on the way
from jax.interpreters import ad, batching, mlir

from amdattn.arch.props import DeviceProps
from amdattn.errors import UnsupportedDeviceError, UnsupportedProblem
from amdattn.jax import partitioning, targets
from amdattn.jax.encoding import EncodedPlan, encode
from amdattn.jax.lowering_device import chosen_props
from amdattn.jax.manual_axes import aligned, result_type
from amdattn.jax.rules import Arrays, Rules, rules
from amdattn.ops import registry

PRIMITIVE = core.Primitive("amdattn")
PRIMITIVE.multiple_results = True
partitioning.lowers_with_devices(PRIMITIVE)


def call(operation: str, problem: Any, variant: str, *inputs: Any) -> list[jax.Array]:
    """Apply an operation to arrays.

    Parameters
    ----------
    operation : str
        Name of an operation.
    problem : object
        A problem of the operation.
    variant : str
        Of the operation, such as a layout; "" is its only one.
    inputs : arrays
        Operands in the order of the operation's declaration.

    Returns
    -------
    list of array
        Results in the order of declaration, then operands that are written in place.
    """
    inputs = aligned(*inputs)
    return list(PRIMITIVE.bind(*inputs, operation=operation, problem=problem, variant=variant))


# -- outside of jit --------------------------------------------------------------------------------


PRIMITIVE.def_impl(functools.partial(dispatch.apply_primitive, PRIMITIVE))


# -- shapes ----------------------------------------------------------------------------------------


def _abstract_eval(*inputs: Any, operation: str, problem: Any, variant: str) -> Any:
    signature = rules(operation).signature(problem, variant)
    for spec, x in zip(signature.inputs, inputs, strict=True):
        if x.shape != spec.shape or x.dtype != spec.dtype.numpy():
            raise ValueError(
                f"{spec.title} has shape {x.shape} and dtype {x.dtype}; with the other arguments "
                f"of {operation} it must have {spec.shape} and {spec.dtype.name}"
            )
    return [result_type(spec.shape, spec.dtype.numpy(), inputs) for spec in signature.results]


PRIMITIVE.def_abstract_eval(_abstract_eval)


# -- vmap ------------------------------------------------------------------------------------------


def _batch(
    inputs: Sequence[Any], dims: Sequence[int | None], *, operation: str, problem: Any, variant: str
) -> Any:
    """Fold the batch axis into a factor of the problem, or loop if that is impossible."""
    of = rules(operation)
    signature, axes = of.signature(problem, variant), of.axes(problem, variant)
    batched = [d is not None for d in dims]
    size = next(x.shape[d] for x, d in zip(inputs, dims, strict=True) if d is not None)
    names = [spec.name for spec in signature.inputs]
    if size == 0:
        nothing = [jnp.zeros((0, *x.shape), x.dtype.numpy()) for x in signature.results]
        return nothing, [0] * len(nothing)

    def holds(name: str, factor: str) -> bool:
        return any(factors[:1] == (factor,) for factors in axes[name])

    for factor in of.separable(problem, variant):
        if all(
            holds(name, factor)
            for name, is_batched in zip(names, batched, strict=True)
            if is_batched
        ):
            break
    else:
        return _looped(inputs, dims, operation, problem, variant), [0] * len(signature.results)
    folded = []
    for name, x, d, is_batched in zip(names, inputs, dims, batched, strict=True):
        if not holds(name, factor):
            folded.append(x)
            continue
        at = _axis_of(axes[name], factor)
        moved = jnp.moveaxis(x, d, at) if is_batched else jnp.expand_dims(x, at)
        shape = moved.shape
        whole = jnp.broadcast_to(moved, (*shape[:at], size, *shape[at + 1 :]))
        folded.append(whole.reshape(*shape[:at], -1, *shape[at + 2 :]))
    longer = of.resized(problem, {factor: size * of.lengths(problem)[factor]})
    results = call(operation, longer, variant, *folded)
    unfolded, places = [], []
    for spec, x in zip(signature.results, results, strict=True):
        at = _axis_of(axes[spec.name], factor)
        unfolded.append(x.reshape(*x.shape[:at], size, -1, *x.shape[at + 1 :]))
        places.append(at)
    return unfolded, places


def _axis_of(axes: Any, factor: str) -> int:
    return next(i for i, factors in enumerate(axes) if factors[:1] == (factor,))


def _looped(
    inputs: Sequence[Any], dims: Sequence[Any], operation: str, problem: Any, variant: str
) -> Any:
    moved = [jnp.moveaxis(x, d, 0) for x, d in zip(inputs, dims, strict=True) if d is not None]

    def one(slices: list[Any]) -> Any:
        each = iter(slices)
        return call(
            *(operation, problem, variant),
            *(x if d is None else next(each) for x, d in zip(inputs, dims, strict=True)),
        )

    return jax.lax.map(one, moved)


batching.primitive_batchers[PRIMITIVE] = _batch


# -- derivatives -----------------------------------------------------------------------------------


REVERSE_ONLY = (
    "has a first derivative in reverse mode only (jax.grad, jax.vjp); in other modes, and twice, "
    "plain jax.numpy has them"
)


def _refuse_derivative(*_: Any, operation: str, **params: Any) -> Any:
    if rules(operation).reference is None:
        raise UnsupportedProblem(f"{operation} cannot be differentiated")
    raise UnsupportedProblem(f"{operation} {REVERSE_ONLY}")


ad.primitive_jvps[PRIMITIVE] = _refuse_derivative


# -- lowering --------------------------------------------------------------------------------------


def encoded(operation: str, problem: Any, variant: str, props: DeviceProps) -> EncodedPlan:
    """The encoded plan of a problem; it changes only with tuned tables and kernels."""
    return encode(registry.operation(operation).planned(problem, props), variant)


def _lower(
    ctx: Any, *operands: Any, operation: str, problem: Any, variant: str, platform: str
) -> Any:
    of = rules(operation)
    if partitioning.is_cut(ctx):
        function = partitioning.partitioned(call, of, operation, problem, variant)
        return mlir.lower_fun(function, multiple_results=True)(ctx, *operands)
    if of.compute is not None:
        function = functools.partial(_computed, of, problem, variant)
        return mlir.lower_fun(function, multiple_results=True)(ctx, *operands)
    plan = encoded(operation, problem, variant, chosen_props(platform))
    results = list(ctx.avals_out)
    if plan.workspace_bytes:
        results.append(jax.core.ShapedArray((plan.workspace_bytes,), np.dtype(np.uint8)))
    targets.library()
    lower = jax.ffi.ffi_lowering(
        targets.target_name(operation), operand_output_aliases=dict(plan.signature.aliases) or None
    )
    what = f"{operation}: {problem.brief}"
    found = lower(ctx.replace(avals_out=results), *operands, plan=plan.words, what=what)
    return list(found)[: len(ctx.avals_out)]


def _computed(of: Rules, problem: Any, variant: str, *inputs: Any) -> list[Any]:
    signature = of.signature(problem, variant)
    named: Arrays = {spec.name: x for spec, x in zip(signature.inputs, inputs, strict=True)}
    assert of.compute is not None
    results = of.compute(problem, variant, named)
    return [results[spec.name] for spec in signature.results]


def _refuse(ctx: Any, *operands: Any, operation: str, **params: Any) -> Any:
    platforms = ", ".join(ctx.module_context.platforms)
    have = " and ".join(platform.name for platform in targets.PLATFORMS)
    raise UnsupportedDeviceError(
        f"{operation} is lowered for {platforms}; amdattn has kernels for {have}. "
        'jax.nn.dot_product_attention, or implementation="xla", runs elsewhere'
    )


for _platform in targets.PLATFORMS:
    mlir.register_lowering(
        PRIMITIVE, functools.partial(_lower, platform=_platform.name), platform=_platform.name
    )
mlir.register_lowering(PRIMITIVE, _refuse)


def called(operation: str, problem: Any, variant: str, named: Arrays) -> dict[str, jax.Array]:
    """Apply an operation to operands by name; return results by name."""
    signature = rules(operation).signature(problem, variant)
    results = call(operation, problem, variant, *(named[spec.name] for spec in signature.inputs))
    return {spec.name: x for spec, x in zip(signature.results, results, strict=True)}
