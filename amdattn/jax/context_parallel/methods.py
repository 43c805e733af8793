"""Rings, gathered keys, exchanged heads: attention on shards, as one of the devices computes it.

No collective depends on a condition that differs between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from amdattn.errors import UnsupportedProblem
from amdattn.jax.context_parallel.blocks import Attention, Block, State, visible
from amdattn.jax.context_parallel.order import (
    in_sequence,
    in_zigzag,
    to_contiguous,
    to_zigzag,
)

# -- ring ------------------------------------------------------------------------------------------


def ring(
    q: jax.Array, k: jax.Array, v: jax.Array, attention: Attention, axis_name: Any, order: str
) -> State:
    """Pass keys and values around; merge the attention of each step into the result so far.

    Under a causal mask the order is zig-zag if shards have an even length. Otherwise it is
    contiguous, and keys travel no farther than windows reach.
    """
    num_devices = jax.lax.axis_size(axis_name)
    rows, keys = q.shape[1], k.shape[1]

    def visible_at(shards: int) -> Block | None:
        """The block of the keys that are `shards` shards before the queries."""
        return visible(shards * keys, rows, keys, attention.window)

    wanted = "contiguous" if attention.is_masked else order
    steps = [(visible_at(hops), visible_at(hops - num_devices)) for hops in range(num_devices)]
    if _can_balance(attention, rows):
        wanted = "zigzag"
        # Earlier devices have a low chunk before both chunks of this one, and a high chunk after.
        of_before = Block((0, rows), (0, keys // 2), (-1, -1))
        of_behind = Block((rows // 2, rows), (0, keys), (-1, -1))
        steps = [steps[0], *((of_before, of_behind) for _ in steps[1:])]
    q, k, v = (_reordered(x, axis_name, order, wanted, 1) for x in (q, k, v))
    o, lse = _around(q, k, v, attention, axis_name, steps)
    o = o.astype(q.dtype)
    return State(
        _reordered(o, axis_name, wanted, order, 1), _reordered(lse, axis_name, wanted, order, 2)
    )


def _around(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    attention: Attention,
    axis_name: Any,
    steps: Sequence[tuple[Block | None, Block | None]],
) -> State:
    """Attention over the keys of all devices that some query sees.

    Parameters
    ----------
    steps
        By hops that keys have travelled: the visible block if they come from an earlier device, and
        if they come around from a later one.
    """
    num_devices = len(steps)
    own = steps[0][0]
    assert own is not None  # every query sees the key of its own position
    forwards = [hops for hops in range(1, num_devices) if steps[hops][0]]
    backwards = [hops for hops in range(1, num_devices) if steps[hops][1] and hops not in forwards]
    way = [(hops, 1) for hops in forwards] + [(hops, -1) for hops in reversed(backwards)]
    state, held, at = None, (k, v), (0, 0)
    for following in [*way, None]:
        coming = held
        if following is not None:
            # Sent before this step's attention, so that they travel during it. The first keys that
            # travel backwards start from their own device.
            _, direction = following
            turns = direction != at[1] and direction < 0
            coming = _sent((k, v) if turns else held, axis_name, direction)
        hops, _ = at
        if state is None:
            o, lse = attention.of(own, q, *held)
            state = State(o.astype(jnp.float32) if way else o, lse)
        else:
            before, behind = (_merging(attention, block) for block in steps[hops])
            if steps[hops][0] == steps[hops][1]:
                state = before(state, q, *held)
            else:
                is_before = jax.lax.axis_index(axis_name) >= hops
                state = jax.lax.cond(is_before, before, behind, state, q, *held)
        held, at = coming, following or at
    assert state is not None
    return state


def _merging(attention: Attention, block: Block | None) -> Callable[..., State]:
    if block is None:
        return lambda state, q, k, v: state
    return lambda state, q, k, v: attention.merged(state, attention.of(block, q, k, v), block)


def _sent(shards: Any, axis_name: Any, direction: int) -> Any:
    num_devices = jax.lax.axis_size(axis_name)
    neighbours = [(i, (i + direction) % num_devices) for i in range(num_devices)]
    return jax.lax.ppermute(shards, axis_name, neighbours)


def _can_balance(attention: Attention, rows: int) -> bool:
    """Whether zig-zag order gives all devices the same work."""
    return attention.is_causal and rows % 2 == 0


def _reordered(x: jax.Array, axis_name: Any, order: str, wanted: str, axis: int) -> jax.Array:
    if order == wanted or jax.lax.axis_size(axis_name) == 1:
        return x
    return (to_zigzag if wanted == "zigzag" else to_contiguous)(x, axis_name, axis)


# -- keys and values of all devices on each --------------------------------------------------------


def all_gather(
    q: jax.Array, k: jax.Array, v: jax.Array, attention: Attention, axis_name: Any, order: str
) -> State:
    """Gather all keys on each device, for its own rows.

    Rows are in zig-zag order if that balances the work; keys are always in the sequence's order.
    """
    num_devices = jax.lax.axis_size(axis_name)
    rows = q.shape[1]
    wanted = "zigzag" if _can_balance(attention, rows) else order
    k, v = (jax.lax.all_gather(x, axis_name, axis=1, tiled=True) for x in (k, v))
    keys = k.shape[1]
    if not attention.is_masked:
        return attention.of(Block((0, rows), (0, keys), (-1, -1)), q, k, v)
    if order == "zigzag":
        k, v = (in_sequence(x, num_devices, 1) for x in (k, v))
    q = _reordered(q, axis_name, order, wanted, 1)
    length = rows // 2 if wanted == "zigzag" else rows

    def on(device: int) -> Callable[..., State]:
        chunks = (device, 2 * num_devices - 1 - device) if wanted == "zigzag" else (device,)
        blocks = [visible(chunk * length, length, keys, attention.window) for chunk in chunks]

        def of_device(q: jax.Array, k: jax.Array, v: jax.Array) -> State:
            parts = [
                attention.of(block, part, k, v)
                for block, part in zip(blocks, jnp.split(q, len(blocks), 1), strict=True)
                if block is not None  # always: every row sees the key of its own position
            ]
            o, lse = zip(*parts, strict=True)
            return State(jnp.concatenate(o, 1), jnp.concatenate(lse, 2))

        return of_device

    branches = [on(device) for device in range(num_devices)]
    o, lse = jax.lax.switch(jax.lax.axis_index(axis_name), branches, q, k, v)
    return State(
        _reordered(o, axis_name, wanted, order, 1), _reordered(lse, axis_name, wanted, order, 2)
    )


# -- all rows of some heads ------------------------------------------------------------------------


def ulysses(
    q: jax.Array, k: jax.Array, v: jax.Array, attention: Attention, axis_name: Any, order: str
) -> State:
    """Exchange heads, so that each device has the whole sequence of some of them."""
    num_devices = jax.lax.axis_size(axis_name)
    copies = copies_of_kv_heads(q.shape[2], k.shape[2], num_devices)
    if copies > 1:
        k, v = (jnp.repeat(x, copies, axis=2) for x in (k, v))
    q, k, v = (
        jax.lax.all_to_all(x, axis_name, split_axis=2, concat_axis=1, tiled=True) for x in (q, k, v)
    )
    moves = order == "zigzag" and attention.is_masked
    if moves:
        q, k, v = (in_sequence(x, num_devices, 1) for x in (q, k, v))
    whole = visible(0, q.shape[1], k.shape[1], attention.window)
    assert whole is not None  # every query sees the key of its own position
    o, lse = attention.of(whole, q, k, v)
    if moves:
        o, lse = in_zigzag(o, num_devices, 1), in_zigzag(lse, num_devices, 2)
    return State(
        jax.lax.all_to_all(o, axis_name, split_axis=1, concat_axis=2, tiled=True),
        jax.lax.all_to_all(lse, axis_name, split_axis=2, concat_axis=1, tiled=True),
    )


def copies_of_kv_heads(num_heads_q: int, num_heads_kv: int, num_devices: int) -> int:
    """The number of devices that share a KV head.

    Raises
    ------
    UnsupportedProblem
        Heads cannot be distributed evenly.
    """
    if num_heads_q % num_devices:
        raise UnsupportedProblem(
            f"q has {num_heads_q} heads; method='ulysses' over {num_devices} devices needs a "
            "multiple of that. method='ring' and 'all_gather' take any number"
        )
    if num_heads_kv % num_devices and num_devices % num_heads_kv:
        raise UnsupportedProblem(
            f"k and v have {num_heads_kv} heads; method='ulysses' over {num_devices} devices "
            "needs a multiple or a divisor of that. method='ring' and 'all_gather' take any number"
        )
    return max(1, num_devices // num_heads_kv)


METHODS = {"ring": ring, "all_gather": all_gather, "ulysses": ulysses}
