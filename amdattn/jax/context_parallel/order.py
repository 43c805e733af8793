"""The orders in which devices have the rows of a sequence, and exchanges between them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from amdattn import scalars

ORDERS = ("contiguous", "zigzag")


def zigzag_order(seqlen: int, num_devices: int, *, inverse: bool = False) -> Any:
    """The permutation of rows that distributes a sequence in zig-zag order.

    Device i of n has chunks i and 2 n - 1 - i of 2 n, so that under a causal mask all devices have
    the same amount of work.

    Parameters
    ----------
    seqlen : int
        Rows of the sequence; a multiple of 2 `num_devices`.
    num_devices : int
        Devices along the mesh axis that cuts the sequence.
    inverse : bool
        Return the inverse permutation.

    Returns
    -------
    numpy.ndarray, int64, (seqlen,)
        ``x[:, zigzag_order(seqlen, n)]``, cut in n equal parts along its rows, is `order="zigzag"`
        of `context_parallel_attention`; ``x[:, zigzag_order(seqlen, n, inverse=True)]`` restores
        the original order.

    Raises
    ------
    ValueError, TypeError
        `seqlen` is not such a multiple, or `num_devices` is not >= 1.
    """
    seqlen = scalars.integer("seqlen", seqlen)
    num_devices = scalars.integer("num_devices", num_devices)
    if num_devices < 1:
        raise ValueError(f"num_devices={num_devices} must be >= 1")
    if seqlen < 0 or seqlen % (2 * num_devices):
        raise ValueError(
            f"seqlen={seqlen} must be a multiple of 2 * num_devices={2 * num_devices}, and >= 0"
        )
    chunks = np.arange(seqlen).reshape(2 * num_devices, seqlen // (2 * num_devices))
    order = np.stack([chunks[:num_devices], chunks[: num_devices - 1 : -1]], axis=1).reshape(-1)
    return np.argsort(order) if scalars.boolean("inverse", inverse) else order


def in_sequence(x: jax.Array, num_devices: int, axis: int) -> jax.Array:
    """Reorder the concatenated zig-zag shards of all devices to the order of the sequence."""
    shape = x.shape
    chunk = shape[axis] // (2 * num_devices)
    pairs = x.reshape(*shape[:axis], num_devices, 2, chunk, *shape[axis + 1 :])
    low, high = (jax.lax.index_in_dim(pairs, i, axis + 1, keepdims=False) for i in (0, 1))
    return jnp.concatenate([low, jnp.flip(high, axis)], axis).reshape(shape)


def in_zigzag(x: jax.Array, num_devices: int, axis: int) -> jax.Array:
    """The inverse of `in_sequence`."""
    shape = x.shape
    chunk = shape[axis] // (2 * num_devices)
    chunks = x.reshape(*shape[:axis], 2, num_devices, chunk, *shape[axis + 1 :])
    low, high = (jax.lax.index_in_dim(chunks, i, axis, keepdims=False) for i in (0, 1))
    return jnp.stack([low, jnp.flip(high, axis)], axis + 1).reshape(shape)


# -- from device to device -------------------------------------------------------------------------
#
# In contiguous order device i has chunks 2 i and 2 i + 1. In zig-zag order no device has two even
# or two odd chunks, so two permutations of devices move everything.


def destinations(num_devices: int, parity: int) -> list[tuple[int, int]]:
    """Pairs (from, to) of devices for the even (parity 0) or the odd (parity 1) chunks."""
    chunks = [2 * i + parity for i in range(num_devices)]
    return [(i, min(c, 2 * num_devices - 1 - c)) for i, c in enumerate(chunks)]


def to_zigzag(x: jax.Array, axis_name: Any, axis: int) -> jax.Array:
    """Exchange shards in contiguous order for those in zig-zag order."""
    num_devices = jax.lax.axis_size(axis_name)
    even, odd = (
        jax.lax.ppermute(half, axis_name, destinations(num_devices, parity))
        for parity, half in enumerate(jnp.split(x, 2, axis))
    )
    # The low chunk of device i is chunk i.
    return _ordered(even, odd, axis_name, axis)


def to_contiguous(x: jax.Array, axis_name: Any, axis: int) -> jax.Array:
    """The inverse of `to_zigzag`."""
    num_devices = jax.lax.axis_size(axis_name)
    low, high = jnp.split(x, 2, axis)
    halves = jnp.split(_ordered(low, high, axis_name, axis), 2, axis)
    return jnp.concatenate(
        [
            jax.lax.ppermute(
                half, axis_name, [(to, i) for i, to in destinations(num_devices, parity)]
            )
            for parity, half in enumerate(halves)
        ],
        axis,
    )


def _ordered(first: jax.Array, second: jax.Array, axis_name: Any, axis: int) -> jax.Array:
    """Concatenate two chunks, on odd devices in reverse order."""
    is_even = jax.lax.axis_index(axis_name) % 2 == 0
    return jnp.concatenate(
        [jnp.where(is_even, first, second), jnp.where(is_even, second, first)], axis
    )
