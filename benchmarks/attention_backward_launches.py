"""Launches of attention backward composed of workgroups that were modelled alone, ours and AITER's.

Pure: what a workgroup takes is given. Without a mask a launch is rounds of CUs; under a causal one
workgroups differ, and each CU of an XCD takes the next one of it as soon as it is free.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from amdattn.arch.attention_kernels import ATTENTION_KERNELS
from amdattn.arch.props import DeviceProps
from amdattn.ops.attention_backward.splitting import Splits

STEP = 16  # rows that a figure is for
Sizes = tuple[int, int, int, int]  # batch, heads of q and of k, rows


@dataclass(frozen=True)
class Loop:
    """Of one kernel, under one reading.

    Attributes
    ----------
    kernel : str
    keys : int
        Of a workgroup.
    clk, limit : float
        For `keys` keys and STEP rows; the latter of the matrix units at their fastest.
    outside : float
        Beside the loop, of a block of keys. Under a mask with what its cut tiles take more.
    another : float
        For each further head of q of a group, beside its steps and cut tiles.
    """

    kernel: str
    keys: int
    clk: float
    limit: float
    outside: float
    another: float = 0.0

    @property
    def use(self) -> float:
        """Share of the matrix limit."""
        return self.limit / self.clk


# AITER's of 16 bits of sums of dQ and of 32, rtz where roundings have objects, as
# benchmarks/attention_backward_peers.py finds them at e4048607: of 16 rows, by bits, architecture,
# head_dim and mask.
_BWD = "fmha_bwd_hd"
AITER = {
    (16, "gfx942", 128, False): Loop(_BWD + "128_bf16_a16_rtz", 192, 2170, 1920, 18932),
    (16, "gfx942", 128, True): Loop(_BWD + "128_bf16_causal_a16_rtz", 192, 2174, 1920, 20398),
    (16, "gfx942", 64, False): Loop(_BWD + "64_bf16_a16_rtz", 192, 1333, 960, 12636),
    (16, "gfx942", 64, True): Loop(_BWD + "64_bf16_causal_a16_rtz", 192, 1335, 960, 13712),
    (16, "gfx950", 128, False): Loop(_BWD + "128_bf16_a16_psskddv", 256, 2240, 1280, 14386),
    (16, "gfx950", 128, True): Loop(_BWD + "128_bf16_causal_a16_psskddv", 256, 2272, 1280, 16090),
    (16, "gfx950", 64, False): Loop(_BWD + "64_bf16_a16_rtz", 192, 1305, 480, 13474),
    (16, "gfx950", 64, True): Loop(_BWD + "64_bf16_causal_a16_rtz", 192, 1307, 480, 14412),
    (32, "gfx942", 128, False): Loop(_BWD + "128_bf16_a32_rtz", 192, 2458, 1920, 19176),
    (32, "gfx942", 128, True): Loop(_BWD + "128_bf16_causal_a32_rtz", 192, 2462, 1920, 20642),
    (32, "gfx942", 64, False): Loop(_BWD + "64_bf16_a32_rtz_pssk", 192, 1347, 960, 13220),
    (32, "gfx942", 64, True): Loop(_BWD + "64_bf16_causal_a32_rtz_pssk", 192, 1363, 960, 14246),
    (32, "gfx950", 128, False): Loop(_BWD + "128_bf16_a32_psskddv", 256, 2244, 1280, 14432),
    (32, "gfx950", 128, True): Loop(_BWD + "128_bf16_causal_a32_psskddv", 256, 2276, 1280, 16142),
    (32, "gfx950", 64, False): Loop(_BWD + "64_bf16_a32_rtz_pssk", 192, 1319, 480, 14094),
    (32, "gfx950", 64, True): Loop(_BWD + "64_bf16_causal_a32_rtz_pssk", 192, 1335, 480, 14978),
}  # fmt: skip
# HipKittens' of four waves, all heads of a group in a workgroup, as its source of November 2025
# compiles: modelled on this device once, outside of its loop to the nearest 500.
HIPKITTENS = Loop("attn_bkwd_non_causal", 256, 2383, 1280, 8500)


def composed(loop: Loop, sizes: Sizes, props: DeviceProps, splits: Splits | None = None) -> float:
    """Clk without a mask: rounds of CUs, of workgroups that go through all their rows."""
    _, heads, heads_kv, seqlen = sizes
    splits = splits or Splits()

    def rounds(workgroups: int, of: Splits) -> float:
        group = heads // heads_kv // of.heads
        of_head = -(seqlen // -STEP // of.rows) * loop.clk
        of_each = loop.outside + group * of_head + (group - 1) * loop.another
        return -(-workgroups // props.num_cus) * of_each

    whole = splits.whole_blocks
    return rounds(whole, Splits()) + rounds(
        split_blocks(loop, sizes, splits) * splits.count, splits
    )


def split_blocks(loop: Loop, sizes: Sizes, splits: Splits) -> int:
    """Blocks of keys that are split."""
    batch, _, heads_kv, seqlen = sizes
    return batch * heads_kv * -(-seqlen // loop.keys) - splits.whole_blocks


def split_rows(loop: Loop, sizes: Sizes, splits: Splits) -> int:
    """Of a head of k, on average, those that are summed."""
    batch, _, heads_kv, seqlen = sizes
    if not splits.whole_blocks:
        return seqlen
    return -(-split_blocks(loop, sizes, splits) * loop.keys // (batch * heads_kv))


def composed_aiter(sizes: Sizes, head_dim: int, props: DeviceProps, sums: int = 16) -> float:
    """Clk of AITER's without a mask: a workgroup has a block of keys of one head of q.

    sums : bits of those of dQ.
    What sums dK and dV of a group's heads is another launch, and not in it.
    """
    batch, heads, _, seqlen = sizes
    return composed(AITER[sums, props.arch, head_dim, False], (batch, heads, heads, seqlen), props)


def composed_causal(
    loop: Loop, plain: Loop, sizes: Sizes, props: DeviceProps, splits: Splits | None = None
) -> float:
    """Clk of ours under a causal mask: a workgroup has a block of keys of all heads of a group.

    What is outside of the loop comes once, but what cut tiles take, which is what `loop` has more
    outside than `plain`, the loop without a mask, with every head.
    """
    batch, heads, heads_kv, seqlen = sizes
    splits = splits or Splits()
    group, blocks = heads // heads_kv // splits.heads, -(-seqlen // loop.keys)
    cut = (loop.outside - plain.outside) / loop.keys  # of a row

    def clk(block: int) -> list[float]:
        """Of its splits, the first rows first."""
        rows = seqlen - block * loop.keys
        of_split = -(rows // -STEP // splits.rows) * STEP
        found = []
        for first in range(0, splits.rows * of_split, of_split):
            own = max(0, min(of_split, rows - first))
            # Of the last block all tiles are cut, as some of its keys are beyond the last one.
            of_head = own / STEP * loop.clk + max(0, min(own, loop.keys - first)) * cut
            alone = plain.outside + group * of_head + (group - 1) * plain.another
            found += [alone] * splits.heads
        return found

    at_once = ATTENTION_KERNELS[props.arch].heads_of_xcd * props.num_xcds
    return last_end(_chunks(batch * heads_kv, at_once, blocks, clk), props)


def composed_pairs(loop: Loop, sizes: Sizes, props: DeviceProps) -> float:
    """Clk of AITER's under a causal mask: a workgroup has a block of one head of q from either end.

    Blocks of a head are next to each other in the grid; one in the middle is alone.
    """
    batch, heads, _, seqlen = sizes
    blocks = -(-seqlen // loop.keys)

    def rows(block: int) -> int:
        return seqlen - block * loop.keys

    of_head = []
    for block in range(-(-blocks // 2)):
        both = {block, blocks - 1 - block}
        of_head.append(sum(loop.outside + rows(one) / STEP * loop.clk for one in both))
    return last_end(of_head * (batch * heads), props)


def _chunks(
    heads: int, at_once: int, blocks: int, clk: Callable[[int], list[float]]
) -> Iterator[float]:
    """As asm_src/attn_bwd/work.h has it: the first blocks of some heads, then the second ones."""
    for first in range(0, heads, at_once):
        for block in range(blocks):
            for of_split in clk(block):
                yield from [of_split] * min(at_once, heads - first)


def last_end(workgroups: Sequence[float] | Iterator[float], props: DeviceProps) -> float:
    """When the last of them ends: they go round robin over the XCDs, one at a time on each CU."""
    cus = [[0.0] * (props.num_cus // props.num_xcds) for _ in range(props.num_xcds)]
    for nth, clk in enumerate(workgroups):
        xcd = cus[nth % props.num_xcds]
        heapq.heapreplace(xcd, xcd[0] + clk)
    return max(map(max, cus))
