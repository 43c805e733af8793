"""Attention backward of sequences of several lengths, modelled, beside the least that it can take.

    AMDATTN_DEVICE=virtual:gfx942 python -m benchmarks.attention_backward_varlen [--full N]

For each mix the main launch and what sums splits, clk, and as its bound the greater of two: what
its longest sequence takes alone, with the plan of a batch of this one; and what its blocks of keys,
whole ones, take together, one after the other, divided by the CUs. Workgroups are composed of lone
ones, as `attention_backward_loop` models them, and taken by CUs in the order of the grid, which
has the longest sequence first; those without keys take what such a one was simulated with. "As they
come" is the same in the order of the sequences, which no kernel has. `--full N` simulates the first
N mixes besides.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import amdattn
from amdattn import virtual
from amdattn.arch.props import DeviceProps
from amdattn.dtypes import as_dtype
from amdattn.ops.attention_backward.execution import BackwardPlan
from amdattn.ops.attention_backward.kernels import BACKWARD
from amdattn.ops.attention_backward.splitting import Splits
from benchmarks import attention_backward_loop as lone
from benchmarks.attention_backward_launches import STEP, Loop, last_end

BAR = 1.25
HEAD_DIM = 128
DTYPE = "bf16"


@dataclass(frozen=True)
class Mix:
    """Lengths of sequences that attend to themselves."""

    name: str
    lengths: tuple[int, ...]
    heads: int = 8
    heads_kv: int = 8
    causal: bool = False

    def plan(self) -> BackwardPlan:
        """As a call with these lengths has it."""
        rows, longest = sum(self.lengths), max(self.lengths)
        return amdattn.plan_attention_backward(
            *(len(self.lengths), longest, longest, self.heads, self.heads_kv, HEAD_DIM),
            device=amdattn.device_props(), dtype=DTYPE, causal=self.causal,
            total_q=rows, total_kv=rows,
        )  # fmt: skip

    def alone(self) -> BackwardPlan:
        """Of the longest sequence."""
        longest = max(self.lengths)
        return amdattn.plan_attention_backward(
            *(1, longest, longest, self.heads, self.heads_kv, HEAD_DIM),
            device=amdattn.device_props(), dtype=DTYPE, causal=self.causal,
        )  # fmt: skip


def lognormal(count: int, mean: float, seed: int) -> tuple[int, ...]:
    """Of a standard deviation of one e-fold, at most eight times `mean`."""
    drawn = np.random.default_rng(seed).lognormal(np.log(mean), 1.0, count)
    return tuple(np.clip(drawn, 1, 8 * mean).astype(int).tolist())


_SHORT = lognormal(32, 200, 1)
MIXES = (
    Mix("1024, 15 of 64", (1024,) + (64,) * 15),
    Mix("1024, 15 of 64", (1024,) + (64,) * 15, causal=True),
    Mix("15 of 64, 1024", (64,) * 15 + (1024,)),
    Mix("1024, then 64 empty", (1024,) + (0,) * 64),
    Mix("rising 64 .. 1024", tuple(range(64, 1025, 64))),
    Mix("rising 64 .. 1024", tuple(range(64, 1025, 64)), 16, 2, True),
    Mix("lognormal, 32 around 200", _SHORT),
    Mix("lognormal, 32 around 200", _SHORT, causal=True),
    Mix("lognormal, 32 around 200", _SHORT, 32, 4, True),
    Mix("12 of 512", (512,) * 12),
    Mix("39 of 256", (256,) * 39),
    Mix("4096, 7 of 128", (4096,) + (128,) * 7),
    Mix("4096, 7 of 128", (4096,) + (128,) * 7, causal=True),
    Mix("7 of 128, 4096", (128,) * 7 + (4096,), 32, 4),
    Mix("8192, 63 of 1", (8192,) + (1,) * 63),
    Mix("rising 128 .. 4096", tuple(range(128, 4097, 128)), 16, 16),
    Mix("rising 128 .. 4096", tuple(range(128, 4097, 128)), 64, 8, True),
    Mix("lognormal, 64 around 1000", lognormal(64, 1000, 2)),
    Mix("lognormal, 64 around 1000", lognormal(64, 1000, 2), 64, 8, True),
    Mix("lognormal, 16 around 1000", lognormal(16, 1000, 3), 32, 8),
)


@functools.cache
def loops(causal: bool) -> tuple[Loop, Loop]:
    """Of the kernel without a mask, and under the mix's one."""
    plain = lone.measure(HEAD_DIM, HEAD_DIM, {}, DTYPE, 1.0)
    masked = lone.measure(HEAD_DIM, HEAD_DIM, lone.CAUSAL, DTYPE, 1.0)
    return plain, masked if causal else plain


@functools.cache
def without_keys() -> float:
    """Clk of a workgroup that has none: most of this launch have not."""
    mix = Mix("", (200,) + (0,) * 64)
    return float(np.median([one.end - one.start for one in simulated(mix)[0].times]))


def simulated(mix: Mix) -> list[virtual.LaunchProfile]:
    """The main launch, and what sums splits."""
    rng, element = np.random.default_rng(1), as_dtype(DTYPE).numpy()
    rows, longest = sum(mix.lengths), max(mix.lengths)

    def operand(heads: int) -> np.ndarray:
        return rng.standard_normal((rows, heads, HEAD_DIM), np.float32).astype(element)

    q, k = operand(mix.heads), operand(mix.heads_kv)
    lse = np.full((mix.heads, rows), np.log(longest), np.float32)
    sums = np.cumsum([0, *mix.lengths]).astype(np.int32)
    with virtual.profile() as profile:
        amdattn.flash_attn_varlen_backward(
            *(q, q, k, k, q, lse, sums, sums, longest, longest), causal=mix.causal
        )
    return [one for one in profile.launches if lone._is_main(one.kernel) or "_sum_" in one.kernel]


def _main_arguments(plan: BackwardPlan) -> dict[str, Any]:
    (args,) = (dict(one.args) for one in plan.launches if one.kernel.op == BACKWARD)
    return args


def splits_of(plan: BackwardPlan) -> Splits:
    """Of its blocks of keys."""
    args = _main_arguments(plan)
    return Splits(args["head_splits"], args["row_splits"], whole_rows=args["whole_rows"])


def of_block(mix: Mix, length: int, block: int, splits: Splits) -> Iterator[float]:
    """Clk of the workgroups of a block of keys of one head of k."""
    if splits.count > 1 and length <= splits.whole_rows:
        yield from of_block(mix, length, block, Splits())
        yield from [without_keys()] * (splits.count - 1)
        return
    plain, _ = loops(mix.causal)
    keys = plain.keys
    if block * keys >= length:
        yield from [without_keys()] * splits.count
        return
    cut = (loops(True)[1].outside - plain.outside) / keys * STEP  # of a tile that a mask cuts
    rows = length - block * keys if mix.causal else length
    tiles = -(-rows // STEP)
    is_part = length < (block + 1) * keys
    of_split = -(-tiles // splits.rows)
    group = mix.heads // mix.heads_kv // splits.heads
    for part in range(splits.rows):
        own = max(0, min(of_split, tiles - part * of_split))
        first = part * of_split  # tiles of the diagonal are the first ones
        on_diagonal = max(0, min(keys // STEP, first + own) - first) if mix.causal else 0
        of_head = own * plain.clk + (own if is_part else on_diagonal) * cut
        clk = plain.outside + group * of_head + (group - 1) * plain.another
        yield from [clk] * splits.heads


def grid(mix: Mix, lengths: Sequence[int], at_once: int, splits: Splits) -> Iterator[float]:
    """Workgroups as asm_src/attn_bwd/work.h has them."""
    keys = loops(False)[0].keys
    blocks = -(-max(lengths) // keys)
    heads = [length for length in lengths for _ in range(mix.heads_kv)]
    for first in range(0, len(heads), at_once):
        chunk = heads[first : first + at_once]
        for block in range(blocks):
            each = [list(of_block(mix, length, block, splits)) for length in chunk]
            for split in range(splits.count):
                yield from (one[split] for one in each)


@functools.cache
def sum_clk(rows: int, heads_kv: int, splits: Splits) -> float:
    """Of the launch that sums splits; 0 of one."""
    if splits.count == 1:
        return 0.0
    return lone.sum_clk(1, heads_kv, rows, HEAD_DIM, DTYPE, splits)


def composed(mix: Mix, plan: BackwardPlan, lengths: Sequence[int], props: DeviceProps) -> float:
    """Clk of the main launch and of what sums splits."""
    splits = splits_of(plan)
    main = last_end(grid(mix, lengths, _main_arguments(plan)["heads_at_once"], splits), props)
    summed = sum(length for length in lengths if length > splits.whole_rows)
    return main + sum_clk(summed, mix.heads_kv, Splits(splits.heads, splits.rows))


def share(mix: Mix, props: DeviceProps) -> float:
    """Of a CU: all blocks, whole, one after the other."""
    keys = loops(False)[0].keys
    together = sum(
        clk
        for length in mix.lengths
        for block in range(-(-length // keys))
        for clk in of_block(mix, length, block, Splits())
    )
    return together * mix.heads_kv / props.num_cus


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    props = amdattn.device_props()
    print(f"without keys: {without_keys():.0f} clk")
    print(
        "| lengths | heads | mask | splits | kclk | longest alone | blocks / CUs | ratio "
        "| as they come | simulated |"
    )
    print("|---|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for nth, mix in enumerate(MIXES):
        plan, alone = mix.plan(), mix.alone()
        in_order = sorted(mix.lengths, reverse=True)
        clk = composed(mix, plan, in_order, props)
        bounds = composed(mix, alone, (max(mix.lengths),), props), share(mix, props)
        unordered = composed(mix, plan, mix.lengths, props)
        full = ""
        if nth < arguments.full:
            full = f"{sum(one.cycles for one in simulated(mix)) / 1e3:.0f}"
        splits = splits_of(plan)
        whole = f" from {splits.whole_rows + 1} rows" if splits.whole_rows >= 0 else ""
        print(
            f"| {mix.name} | {mix.heads}/{mix.heads_kv} | {'causal' if mix.causal else ''} "
            f"| {splits.heads} x {splits.rows}{whole} | {clk / 1e3:.0f} | {bounds[0] / 1e3:.0f} "
            f"| {bounds[1] / 1e3:.0f} | {clk / max(bounds):.2f} | {unordered / max(bounds):.2f} "
            f"| {full} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
