"""Attention kernels of others that solve a shape by one launch, whose workgroups may share CUs."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from amdattn.bench.kernels import Functions, Launch, Operands, Walk
from amdattn.bench.modelled import Modelled
from amdattn.bench.shapes import Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from amdattn.bench.modelled import ModelOptions


class OneLaunch(abc.ABC):
    """A peer that is one launch.

    Attributes
    ----------
    peer : str
        Whose it is.
    round_mode : str
        Rounding of the probabilities.
    causal_granule : int
        256, or 512 where workgroups of a causal mask take tiles of 256 rows in pairs.
    compact : bool
        It takes no batch strides: shorter problems have operands of their own.
    """

    peer: str
    causal_granule: ClassVar[int]
    round_mode: str
    compact: bool = False

    @abc.abstractmethod
    def refusal(self, shape: Shape) -> str:
        """Why it cannot solve the shape; "" if it can."""

    @abc.abstractmethod
    def launch(self, shape: Shape, operands: Operands) -> Launch:
        """The launch for a shape of at most the operands' lengths."""

    @abc.abstractmethod
    def walk(self, shape: Shape) -> Walk:
        """What its workgroups do."""

    def launches(self, shape: Shape, operands: Operands) -> list[Launch]:
        """That one."""
        return [self.launch(shape, operands)]

    def model(
        self, shape: Shape, functions: Functions, **options: Unpack[ModelOptions]
    ) -> list[Modelled]:
        """What the performance model says of it; see `Sampler`."""
        from benchmarks.peers.sampling import Sampler  # which needs what is here

        return [Sampler(self, shape, functions, **options).model()]


def grid_indices(grid: tuple[int, int, int]) -> tuple[NDArray[np.int64], ...]:
    """X, y and z of every workgroup, by flat id; x varies fastest."""
    x, y, z = grid
    flat = np.arange(x * y * z)
    return flat % x, flat // x % y, flat // (x * y)


def streams(shape: Shape, batch: NDArray[np.int64], head: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of query heads: which K and V they read."""
    return batch * shape.heads_kv + head // (shape.heads_q // shape.heads_kv)


def kv_range_of_tiles(
    shape: Shape, q_tile: int, kv_tile: int, tiles: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """KV rows, in whole tiles, that tiles of Q go over; masks are aligned at the bottom right."""
    problem = shape.problem("rtne")
    left, right = problem.window
    end = np.full(tiles.shape, shape.seqlen_kv, np.int64)
    if right >= 0:
        last = (tiles + 1) * q_tile + problem.diagonal + right
        end = np.clip(last, 0, shape.seqlen_kv)
    begin = np.zeros(tiles.shape, np.int64)
    if left >= 0:
        begin = np.maximum(tiles * q_tile + problem.diagonal - left, 0) // kv_tile * kv_tile
    return begin, np.maximum(-(-end // kv_tile) * kv_tile, begin)
