"""Attention problems whose launches reach every path of the kernels, for the mutation campaign."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """A problem, with what else decides which paths a kernel takes."""

    batch: int
    seqlen_q: int
    seqlen_kv: int
    num_heads_q: int
    num_heads_kv: int
    lse: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)  # of AttentionProblem
    lengths: tuple[tuple[int, int], ...] = ()  # of every sequence, for several lengths
    growth: float = 1.0  # from the first key to the last: scores outgrow the first ones
    nan: bool = False  # in a row of each 16 of q
    nan_k: bool = False  # in the last kv head, behind the columns of the one before
    nan_v: bool = False  # the same
    nan_sink: bool = False  # of all heads
    calm: bool = False  # every other row of q nearly 0: its scores outgrow nothing
    narrow: int = 0  # head_dim_v if it is not the kernel's, with a head_dim that is not either:
    sixteenths: int = 9  # of it
    scale_v: float = 1.0
    halves: bool = False  # scale_v is of every second four columns only
    one_cu: bool = False  # so that there are whole tiles where a device has slots for parts
    one_xcd: bool = False  # whose part of the last level cache makes a launch that merges dear
    stale: bool = False  # counters of arrivals as a launch that was aborted left them
    floats: bool = False  # results of float32, as a cascade merges them

    @property
    def name(self) -> str:
        """One line for people."""
        options = "".join(f" {name}={value}" for name, value in self.options.items())
        return (
            f"{self.batch}x{self.seqlen_q}x{self.seqlen_kv}x{self.num_heads_q}:{self.num_heads_kv}"
            f"{options}{' lengths' * bool(self.lengths)}{' NaN' * self.nan}"
            f"{' NaN in K' * self.nan_k}{' NaN in V' * self.nan_v}"
            f"{' NaN sinks' * self.nan_sink}{' growing' * (self.growth > 1)}"
            f"{' calm rows' * self.calm}"
            f"{'' if self.lse else ' no lse'}"
            f"{f' head_dim_v={self.narrow}' if self.narrow else ''}"
            f"{f' v*{self.scale_v:g}' if self.scale_v != 1 else ''}"
            f"{' of half of the columns' * self.halves}{' one CU' * self.one_cu}"
            f"{' one XCD' * self.one_xcd}{' stale' * self.stale}{' floats' * self.floats}"
        )


# Whole tiles and tails of both sequences, one tile and several, grouped heads, batches, with and
# without lse; blocks of keys with and without a mask, scores that outgrow the first ones in
# either, no key at all, parts, sinks, sequences of several lengths, a NaN.
_WHOLE = {"num_splits": 1}
_ORDERED = ((400, 70), (3, 50), (0, 9), (40, 0))
_MANY = (*_ORDERED, *((0, 0),) * 61)  # more than workgroups find tiles of: a launch before does
_OF_ANY_SCALE: tuple[AttentionCase, ...] = (
    AttentionCase(1, 129, 200, 2, 1, options=_WHOLE),
    AttentionCase(1, 24, 61, 1, 1, options=_WHOLE),
    AttentionCase(1, 130, 121, 1, 1, lse=False, options=_WHOLE),
    AttentionCase(1, 100, 170, 1, 1, options=_WHOLE, growth=400.0),
    AttentionCase(1, 130, 70, 1, 1, options={**_WHOLE, "sinks": True}, nan=True),
    AttentionCase(1, 410, 470, 1, 1, options={**_WHOLE, "window_size": (60, 20)}, growth=400.0),
    AttentionCase(
        *(2, 70, 50, 2, 1),
        options={**_WHOLE, "causal": True, "top_left": True},
        lengths=((70, 0), (3, 50)),
    ),
    AttentionCase(1, 130, 150, 1, 1, options={"num_splits": 3}),
    AttentionCase(
        1, 130, 70, 8, 4, options={"num_splits": 2, "causal": True}, lengths=((130, 70),)
    ),
    AttentionCase(
        1, 75, 150, 1, 1, options={"num_splits": 2, "sinks": True, "window_size": (60, 20)}
    ),
    AttentionCase(1, 50, 70, 2, 1, options=_WHOLE, narrow=8),
    AttentionCase(1, 30, 70, 2, 1, options={"num_splits": 2}, narrow=200),
    # Tiles in an order that a launch before has found, or each workgroup.
    AttentionCase(65, 400, 70, 1, 1, options=_WHOLE, lengths=_MANY, one_cu=True),
    AttentionCase(65, 400, 70, 1, 1, options={"num_splits": 2}, lengths=_MANY, one_cu=True),
    AttentionCase(4, 400, 70, 1, 1, options=_WHOLE, lengths=_ORDERED, one_cu=True),
    AttentionCase(4, 400, 70, 1, 1, options={"num_splits": 2}, lengths=_ORDERED, one_cu=True),
    AttentionCase(4, 400, 70, 1, 1, options=_WHOLE, lengths=_ORDERED, one_cu=True, narrow=200),
)
FORWARD: tuple[AttentionCase, ...] = (
    *_OF_ANY_SCALE,
    AttentionCase(2, 37, 64, 2, 2, options=_WHOLE),
    AttentionCase(1, 40, 37, 1, 1, options=_WHOLE),
    AttentionCase(1, 24, 185, 1, 1, options=_WHOLE),
    AttentionCase(1, 24, 192, 1, 1, options=_WHOLE),
    AttentionCase(1, 300, 300, 2, 1, options=_WHOLE),
    AttentionCase(1, 5, 70, 1, 1, options=_WHOLE, nan=True),
    AttentionCase(1, 130, 70, 1, 1, lse=False, options=_WHOLE, nan=True),
    AttentionCase(1, 50, 70, 1, 1, options=_WHOLE, nan=True),
    AttentionCase(1, 80, 40, 8, 4, options={**_WHOLE, "causal": True, "sinks": True}),
    AttentionCase(1, 30, 70, 3, 3, options={"num_splits": 2, "causal": True}),
    AttentionCase(1, 130, 70, 1, 1, options=_WHOLE, narrow=40),
    AttentionCase(1, 50, 70, 2, 1, options=_WHOLE, narrow=104, sixteenths=15),
    AttentionCase(1, 50, 70, 2, 1, options=_WHOLE, nan=True, narrow=104, sixteenths=15),
    AttentionCase(1, 100, 170, 1, 1, options=_WHOLE, growth=20.0),
    AttentionCase(1, 100, 170, 1, 1, options=_WHOLE, growth=6.0),
    AttentionCase(1, 50, 70, 2, 1, options=_WHOLE, nan=True, narrow=40),
    AttentionCase(1, 130, 70, 1, 1, options=_WHOLE, nan=True, narrow=104, sixteenths=15),
    AttentionCase(4, 400, 70, 8, 2, options=_WHOLE, lengths=_ORDERED, one_cu=True),
    AttentionCase(
        *(2, 70, 50, 1, 1),
        options={**_WHOLE, "causal": True, "sinks": True},
        lengths=((70, 0), (3, 50)),
        nan_sink=True,
    ),
    AttentionCase(1, 100, 170, 1, 1, options=_WHOLE, growth=400.0, calm=True),
    AttentionCase(
        *(1, 100, 200, 1, 1),
        options={**_WHOLE, "window_size": (60, 20)},
        growth=400.0,
        calm=True,
    ),
    AttentionCase(1, 100, 70, 1, 1, options={**_WHOLE, "sinks": True}),
    AttentionCase(1, 180, 40, 1, 1, options={**_WHOLE, "causal": True}),
    AttentionCase(1, 180, 40, 1, 1, options={**_WHOLE, "causal": True}, narrow=40),
    AttentionCase(2, 70, 70, 1, 1, options={"num_splits": 2}, lengths=((70, 0), (3, 70))),
    AttentionCase(1, 20, 40, 64, 8, options={**_WHOLE, "causal": True}, nan=True),
    AttentionCase(1, 20, 40, 64, 8, options={"num_splits": 2, "causal": True}, nan=True),
    # References of which the logarithm of a sum is no digit.
    AttentionCase(1, 100, 170, 1, 1, options={**_WHOLE, "softmax_scale": 1e11}),
    AttentionCase(1, 130, 70, 1, 1, options={**_WHOLE, "softmax_scale": 1e11, "sinks": True}),
)
# Sums of products with V overflow: such a tile is done again, by code of its own, and again with
# smaller probabilities.
LARGE: tuple[AttentionCase, ...] = tuple(
    dataclasses.replace(case, scale_v=6e37)
    for case in (
        *_OF_ANY_SCALE,
        AttentionCase(1, 40, 70, 2, 1, options=_WHOLE, narrow=200),
        # What did not overflow is kept, element by element.
        AttentionCase(1, 129, 200, 2, 1, options=_WHOLE, halves=True),
        AttentionCase(1, 40, 70, 2, 1, options=_WHOLE, narrow=200, halves=True),
        AttentionCase(1, 129, 200, 2, 1, options={"num_splits": 2}, halves=True),
    )
)
# Results that are finite, but not rounded by two instructions: denormal ones, and those of 2^112.
ENDS: tuple[AttentionCase, ...] = tuple(
    AttentionCase(1, rows, 70, 1, 1, options=options, scale_v=scale)
    for scale in (3e-39, 2e34)
    for rows, options in ((130, _WHOLE), (390, {**_WHOLE, "sinks": True}))
)
# Of kernels that merge the parts of a tile where the last one arrives: each path of that, from
# registers and, where sums overflow, from memory alone; rows of several waves, of one, and of none.
_TWO = {"num_splits": 2}
_TOGETHER: tuple[AttentionCase, ...] = (
    AttentionCase(1, 390, 70, 2, 1, options=_TWO, one_xcd=True),
    AttentionCase(1, 129, 200, 2, 1, options={**_TWO, "causal": True}, one_xcd=True, stale=True),
    AttentionCase(1, 50, 170, 6, 2, options={"num_splits": 3, "sinks": True}, one_xcd=True),
    AttentionCase(1, 50, 70, 2, 1, lse=False, options=_TWO, narrow=40, one_xcd=True),
    AttentionCase(1, 30, 70, 2, 1, options=_TWO, narrow=200, one_xcd=True),
    AttentionCase(2, 70, 70, 2, 1, options=_TWO, lengths=((70, 0), (3, 70)), one_xcd=True),
)
TOGETHER: tuple[AttentionCase, ...] = (
    *_TOGETHER,
    AttentionCase(1, 50, 70, 2, 1, options=_TWO, nan=True, one_xcd=True),
    *(dataclasses.replace(case, scale_v=6e37) for case in _TOGETHER),
    AttentionCase(1, 129, 200, 2, 1, options=_TWO, scale_v=6e37, halves=True, one_xcd=True),
)
# Of kernels whose tiles have several heads: whole tiles and parts of their heads; tiles that no
# mask cuts and tiles with any, rows that see no key.
WINDOW: tuple[AttentionCase, ...] = (
    AttentionCase(1, 40, 150, 4, 1, options={"window_size": (127, 0)}),
    AttentionCase(1, 170, 310, 2, 1, options={"window_size": (127, 0)}, one_cu=True),
    AttentionCase(1, 33, 37, 2, 2, options={"window_size": (19, 4)}, lse=False),
    AttentionCase(
        *(1, 180, 330, 8, 2),
        options={"window_size": (127, 0), "sinks": True},
        nan=True,
        one_cu=True,
    ),
    AttentionCase(1, 60, 40, 4, 1, options={"window_size": (8, 0), "sinks": True}, growth=400.0),
    AttentionCase(
        *(2, 70, 150, 4, 2), options={"window_size": (60, 68), "top_left": True}, nan=True
    ),
    AttentionCase(2, 70, 150, 4, 1, options={"window_size": (40, 8), "sinks": True}, one_cu=True),
    AttentionCase(
        *(2, 70, 50, 4, 1),
        options={"window_size": (50, 0), "causal": True},
        lengths=((70, 0), (3, 50)),
    ),
    AttentionCase(1, 64, 66, 2, 1),
    AttentionCase(
        *(2, 70, 150, 4, 1),
        options={"window_size": (127, 0)},
        narrow=40,
        sixteenths=10,
        one_cu=True,
    ),
    AttentionCase(
        *(2, 70, 90, 4, 2), options={"window_size": (127, 0)}, nan_k=True, narrow=40, sixteenths=6
    ),
    AttentionCase(
        *(2, 70, 90, 4, 1),
        options={"window_size": (40, 8)},
        nan=True,
        narrow=8,
        sixteenths=6,
        one_cu=True,
    ),
    AttentionCase(
        *(1, 50, 90, 4, 2), options={"window_size": (40, 8)}, nan_k=True, narrow=8, sixteenths=10
    ),
    AttentionCase(1, 50, 90, 4, 2, options={"window_size": (40, 8)}, nan_v=True, narrow=40),
    AttentionCase(1, 50, 180, 4, 1, options={"window_size": (127, 0)}, scale_v=1e36),
    AttentionCase(
        *(1, 40, 90, 4, 1), options={"window_size": (40, 8), "softmax_scale": -9.0}, scale_v=5e37
    ),
    AttentionCase(
        *(1, 170, 310, 2, 1),
        options={"window_size": (127, 0), "softmax_scale": -2e4, "sinks": True},
        scale_v=5e37,
        one_cu=True,
    ),
    AttentionCase(1, 40, 90, 4, 1, options={"window_size": (40, 8), "softmax_scale": 0.0}),
    AttentionCase(
        *(3, 70, 90, 4, 1),
        options={"window_size": (50, 0), "causal": True},
        lengths=((70, 0), (3, 90), (50, 60)),
        nan=True,
    ),
    AttentionCase(3, 64, 66, 2, 1, nan=True, one_cu=True),
    AttentionCase(16, 5, 60, 16, 4, options={"window_size": (30, 0)}, nan=True),
    AttentionCase(
        1, 170, 310, 2, 1, lse=False, options={"window_size": (127, 0)}, narrow=8, one_cu=True
    ),
    AttentionCase(1, 50, 90, 4, 2, lse=False, options={"window_size": (40, 8)}, narrow=8),
)
MERGE: tuple[AttentionCase, ...] = (
    AttentionCase(1, 1, 150, 2, 1, options={"num_splits": 3, "sinks": True}),
    AttentionCase(1, 390, 200, 1, 1, options={"num_splits": 2, "causal": True}, nan=True),
    AttentionCase(1, 4, 70, 3, 1, options={"num_splits": 2, "causal": True}),
    AttentionCase(1, 40, 200, 1, 1, lse=False, options={"num_splits": 4}),
    AttentionCase(1, 4, 150, 16, 1, options={"num_splits": 2, "sinks": True}),  # some the greatest
    AttentionCase(1, 40, 200, 2, 1, options={"num_splits": 3}, nan=True, floats=True),
    AttentionCase(1, 40, 70, 2, 1, options={"num_splits": 2}, narrow=40, floats=True),
    AttentionCase(1, 40, 70, 2, 1, options={"num_splits": 2}, narrow=40),
    AttentionCase(1, 30, 70, 2, 1, options={"num_splits": 2}, narrow=200),
    AttentionCase(
        2, 20, 70, 8, 4, options={"num_splits": 2, "causal": True}, lengths=((20, 60), (7, 70))
    ),
    AttentionCase(4, 400, 70, 2, 1, options={"num_splits": 2}, lengths=_ORDERED, one_cu=True),
    AttentionCase(65, 400, 70, 2, 1, options={"num_splits": 2}, lengths=_MANY, one_cu=True),
)
GATHER: tuple[AttentionCase, ...] = (
    AttentionCase(2, 20, 300, 3, 3, options={**_WHOLE, "gather": "k"}),
    AttentionCase(1, 20, 7, 1, 1, options={**_WHOLE, "gather": "k"}),
    AttentionCase(
        *(2, 70, 50, 2, 1), options={**_WHOLE, "gather": "k"}, lengths=((70, 0), (3, 50))
    ),
)
# Of the order of tiles: lengths on both sides of a block, empty sequences and more than a wave has;
# of fewer there is no launch.
_SOME = ((90, 1300), (3, 50), (0, 9), (40, 0), (33, 600), *((0, 0),) * 60)
SCHEDULE: tuple[AttentionCase, ...] = (
    AttentionCase(65, 90, 1300, 2, 1, options={"causal": True}, lengths=_SOME),
    AttentionCase(65, 90, 1300, 1, 1, options={"window_size": (300, 20)}, lengths=_SOME),
    AttentionCase(
        *(80, 600, 2000, 4, 2),
        lengths=((600, 2000), *((n % 37, n % 61) for n in range(79))),
    ),
)
