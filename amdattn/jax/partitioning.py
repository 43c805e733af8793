"""Programs over several devices: which axes of operands a mesh may cut, and what a part computes.

This concerns only programs that XLA partitions. Programs for one device, or in `shard_map`, do not
use it, so they contain no reference to this process.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax._src.dispatch import prim_requires_devices_during_lowering
from jax.sharding import NamedSharding, PartitionSpec

from amdattn.errors import UnsupportedProblem
from amdattn.jax.rules import Axes, Rules


def lowers_with_devices(primitive: Any) -> None:
    """Make JAX pass the devices to the primitive's lowering, which custom partitioning requires.

    JAX has no public name for this; TransformerEngine and others use the same private one.
    """
    prim_requires_devices_during_lowering.add(primitive)


def is_cut(ctx: Any) -> bool:
    """Whether XLA partitions the program that is lowered."""
    context = ctx.module_context.axis_context
    if hasattr(context, "num_devices"):  # in jit
        return int(context.num_devices) > 1
    manual = getattr(context, "manual_axes", None)  # in shard_map
    if manual is None:
        return False
    return any(size > 1 for axis, size in context.mesh.shape.items() if axis not in manual)


def partitioned(
    call: Callable[..., list[Any]], rules: Rules, operation: str, problem: Any, variant: str
) -> Any:
    """The operation as a function that XLA may partition."""
    from jax.experimental.custom_partitioning import custom_partitioning

    signature, axes = rules.signature(problem, variant), rules.axes(problem, variant)
    inputs = [axes[spec.name] for spec in signature.inputs]
    results = [axes[spec.name] for spec in signature.results]
    made = custom_partitioning(functools.partial(_named(call), operation, problem, variant))
    independent = rules.separable(problem, variant)
    cut = functools.partial(_cut, independent, inputs, results)

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        parts = cut(mesh, arguments, result)
        lengths = dict(rules.lengths(problem))
        for factor, names in parts.items():
            ways = math.prod(mesh.shape[name] for name in names)
            if lengths[factor] % ways:
                raise UnsupportedProblem(
                    f"{operation}: {factor}={lengths[factor]} cannot be cut in {ways} parts along "
                    f"mesh axes {names}: use axes whose sizes divide it"
                )
            lengths[factor] //= ways
        local = rules.resized(problem, {factor: lengths[factor] for factor in parts})

        def shardings(of: Sequence[Axes]) -> list[NamedSharding]:
            return [NamedSharding(mesh, _spec(each, parts)) for each in of]

        return (
            *(mesh, functools.partial(call, operation, local, variant)),
            *(shardings(results), tuple(shardings(inputs))),
        )

    def infer(mesh: Any, arguments: Any, result: Any) -> Any:
        parts = cut(mesh, arguments, [])
        return [NamedSharding(mesh, _spec(each, parts)) for each in results]

    rule, whole = _einsum(independent, inputs, results)
    made.def_partition(
        partition=partition,
        infer_sharding_from_operands=infer,
        sharding_rule=rule,
        need_replication_factors=whole,
    )
    return made


def _named(call: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Wrap `call` with named parameters, which JAX needs to resolve those of a partial function."""

    @functools.wraps(call)
    def operation_call(operation: str, problem: Any, variant: str, *inputs: Any) -> list[Any]:
        return call(operation, problem, variant, *inputs)

    return operation_call


def _cut(
    independent: tuple[str, ...],
    inputs: Sequence[Axes],
    results: Sequence[Axes],
    mesh: Any,
    arguments: Any,
    result: Any,
) -> dict[str, tuple[str, ...]]:
    """Mesh axes along which each factor is cut, according to the first array that cuts it."""
    parts: dict[str, tuple[str, ...]] = {}
    used: set[str] = set()
    arrays = [
        *zip(results, jax.tree.leaves(result), strict=False),
        *zip(inputs, jax.tree.leaves(arguments), strict=True),
    ]
    for axes, array in arrays:
        spec = getattr(array.sharding, "spec", None) or ()
        for factors, given in zip(axes, spec, strict=False):
            names = given if isinstance(given, tuple) else () if given is None else (given,)
            factor = factors[0] if factors else ""
            if names and factor in independent and factor not in parts and not used & {*names}:
                parts[factor] = names
                used |= {*names}
    return parts


def _spec(axes: Axes, parts: Mapping[str, tuple[str, ...]]) -> PartitionSpec:
    return PartitionSpec(*(parts.get(factors[0]) if factors else None for factors in axes))


def _einsum(
    independent: tuple[str, ...], inputs: Sequence[Axes], results: Sequence[Axes]
) -> tuple[str, tuple[str, ...]]:
    """Shardy's rule: which axes are cut alike, and which factors are not cut.

    An axis of several factors becomes a single factor here. Otherwise Shardy would split a mesh
    axis in two to share it between query heads and fewer KV heads, and `partition` could not even
    see that.
    """

    def text(axes: Axes) -> str:
        return " ".join(map("_of_".join, axes))

    rule = f"{', '.join(map(text, inputs))} -> {', '.join(map(text, results))}"
    every = dict.fromkeys(factors for axes in (*inputs, *results) for factors in axes)
    # In the order in which the rule names them, as Shardy requires.
    whole = tuple("_of_".join(factors) for factors in every if factors[0] not in independent)
    return rule, whole
