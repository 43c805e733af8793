"""Attention of some rows over some keys of a longer sequence, and merges of such results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from amdattn.jax.attention import flash_attn_func
from amdattn.jax.operations import merge_state


class Block(NamedTuple):
    """The part of a block in which queries see keys.

    Attributes
    ----------
    rows, keys : (int, int)
        Begin and end of the rows and keys that take part; every one of these rows sees a key.
    window : (int, int)
        Relative to the diagonal from the first of these rows and the first of these keys.
    """

    rows: tuple[int, int]
    keys: tuple[int, int]
    window: tuple[int, int]


def visible(offset: int, rows: int, keys: int, window: tuple[int, int]) -> Block | None:
    """The block of keys, at another place in the sequence, that queries see; None: no keys.

    Parameters
    ----------
    offset : int
        Position of the first query minus that of the first key.
    rows, keys : int
        Numbers of queries and keys.
    window : (int, int)
        Window of the whole sequence, relative to equal positions; -1: unlimited on that side.
    """
    left, right = window
    first_row, end_row, first_key, end_key = 0, rows, 0, keys
    # Query r sees keys r + offset - left ... r + offset + right. Windows of kernels contain their
    # diagonal, so rows and keys before the first visible ones are dropped.
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
    """The arguments of attention that all blocks share.

    Attributes
    ----------
    window : (int, int)
        Window of the whole sequence, including causality; -1: unlimited on that side.
    softmax_scale, softcap : float
    backward : str or None
        The `implementation_backward`.
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
        """Attention of the block's rows over its keys."""
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
        """The state of all rows after those of the block have also seen its keys."""
        first, end = block.rows
        o = jnp.stack([state.o[:, first:end], part.o.astype(state.o.dtype)])
        lse = jnp.stack([state.lse[:, :, first:end], part.lse])
        found = State(*merge_state(o, lse, implementation_backward="xla"))
        if found.o.shape == state.o.shape:
            return found
        return State(*(_put(*each, first) for each in zip(state, found, (1, 2), strict=True)))


class State(NamedTuple):
    """Attention over keys seen so far: o (batch, rows, heads, dim), lse (batch, heads, rows)."""

    o: jax.Array
    lse: jax.Array


def _put(whole: jax.Array, part: jax.Array, axis: int, first: int) -> Any:
    return jax.lax.dynamic_update_slice_in_dim(whole, part, first, axis)
