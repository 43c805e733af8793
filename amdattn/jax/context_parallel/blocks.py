"""Attention of some rows over some keys of a longer sequence, and results of several such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from amdattn.jax.attention import flash_attn_func
from amdattn.jax.operations import merge_state


class Block(NamedTuple):
    """Where queries see keys.

    Attributes
    ----------
    rows, keys : (int, int)
        First and end of those of the block that take part: every row of them sees a key.
    window : (int, int)
        Around the diagonal that begins at the first of these rows and the first of these keys.
    """

    rows: tuple[int, int]
    keys: tuple[int, int]
    window: tuple[int, int]


def visible(offset: int, rows: int, keys: int, window: tuple[int, int]) -> Block | None:
    """What queries see of keys that begin elsewhere in the sequence; None: nothing.

    Parameters
    ----------
    offset : int
        Position of the first query less that of the first key.
    rows, keys : int
        How many there are.
    window : (int, int)
        Of the whole sequence, of queries and keys of equal positions; -1: no end on that side.
    """
    left, right = window
    first_row, end_row, first_key, end_key = 0, rows, 0, keys
    # Query r sees keys r + offset - left ... r + offset + right. Kernels have windows that hold
    # their diagonal, so what is in front of the first of either is dropped.
    if left >= 0:
        first_key = max(0, offset - left)
        end_row = min(rows, keys - offset + left)
    if right >= 0:
        first_row = max(0, -offset - right)
        end_key = min(keys, rows + offset + right)
    if first_row >= end_row or first_key >= end_key:
        return None
    offset += first_row - first_key
    inner = (left - offset if left >= 0 else -1, right + offset if right >= 0 else -1)
    return Block((first_row, end_row), (first_key, end_key), inner)


@dataclass(frozen=True)
class Attention:
    """What is the same of every block.

    Attributes
    ----------
    window : (int, int)
        Of the whole sequence, causal included; -1: no end on that side.
    """

    window: tuple[int, int]
    softmax_scale: float
    softcap: float
    backward: str | None

    @property
    def is_causal(self) -> bool:
        """Whether queries see all keys up to their own position."""
        return self.window == (-1, 0)

    @property
    def is_masked(self) -> bool:
        """Whether positions matter."""
        return self.window != (-1, -1)

    def of(self, block: Block, q: jax.Array, k: jax.Array, v: jax.Array) -> State:
        """Result of the block's rows, and their log of sums."""
        keys = slice(*block.keys)
        o, lse = flash_attn_func(
            *(q[:, slice(*block.rows)], k[:, keys], v[:, keys]),
            softmax_scale=self.softmax_scale,
            window_size=block.window,
            softcap=self.softcap,
            top_left=True,
            return_lse=True,
            implementation_backward=self.backward,
        )
        return State(o, lse)

    def merged(self, state: State, part: State, block: Block) -> State:
        """The state of all rows, once those of the block have seen its keys as well."""
        first, end = block.rows
        o = jnp.stack([state.o[:, first:end], part.o.astype(state.o.dtype)])
        lse = jnp.stack([state.lse[:, :, first:end], part.lse])
        found = State(*merge_state(o, lse, implementation_backward="xla"))
        if found.o.shape == state.o.shape:
            return found
        return State(*(_put(*each, first) for each in zip(state, found, (1, 2), strict=True)))


class State(NamedTuple):
    """Attention over the keys seen so far: (batch, rows, heads, dim), (batch, heads, rows)."""

    o: jax.Array
    lse: jax.Array


def _put(whole: jax.Array, part: jax.Array, axis: int, first: int) -> Any:
    return jax.lax.dynamic_update_slice_in_dim(whole, part, first, axis)
