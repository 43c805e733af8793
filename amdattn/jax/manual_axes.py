"""Mesh axes of `jax.shard_map` along which values differ, which JAX keeps as part of their type."""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec


def _varying(aval: Any) -> frozenset[Any]:
    kind = getattr(aval, "manual_axis_type", None)  # in newer JAX; before, vma
    found: frozenset[Any] = aval.vma if kind is None else kind.varying
    return found


def aligned(*inputs: Any) -> tuple[Any, ...]:
    """Cast inputs so that each varies along all axes along which one of them varies.

    Then an operand that is the same on every device gets the sum of the devices' gradients.
    """
    of_each = [_varying(jax.typeof(x)) for x in inputs]
    every = frozenset().union(*of_each)
    return tuple(
        _cast(x, tuple(every - axes)) if every - axes else x
        for x, axes in zip(inputs, of_each, strict=True)
    )


def _cast(x: Any, axes: tuple[Any, ...]) -> Any:
    if hasattr(jax.lax, "pcast"):  # since JAX 0.8.2
        return jax.lax.pcast(x, axes, to="varying")
    return jax.lax.pvary(x, axes)


def result_type(shape: tuple[int, ...], dtype: Any, inputs: tuple[Any, ...]) -> Any:
    """The abstract array of a result that varies along the same axes as its aligned inputs."""
    like = inputs[0]
    if not _varying(like):
        return jax.core.ShapedArray(shape, dtype)
    whole = NamedSharding(like.sharding.mesh, PartitionSpec(*(None,) * len(shape)))
    return like.update(shape=shape, dtype=dtype, weak_type=False, sharding=whole)
