"""Attention over sequences of several lengths, modelled: random mixes, and the worst.

`python -m benchmarks.attention_varlen [--mixes 200] [--seed 1] [--full N] [--json FILE]`, with
AMDATTN_DEVICE=virtual:gfx950 for that architecture

For each mix the time, and as its bound the greater of two: what its longest sequence takes alone,
with the plan that a batch of this one sequence has; and what its tiles take together, one after the
other, divided by the CUs, of the kernel for which that is least. At the peak clock throughout,
launches included but for the first one.

What a workgroup takes follows from simulated ones: outside of its blocks of keys, of a block, more
for a block with a mask, and for a part. The order and the parts of the tiles are what the device
wrote for the lengths, and the launch that writes them is simulated; the others are replayed as the
virtual device dispatches workgroups, with these times, all over N(0, 1). `--full N` simulates N of
the mixes whole besides, which takes minutes each, and prints by how much the replay is off.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import amdattn
from amdattn import virtual
from amdattn.bench.clocks import clocks
from amdattn.bench.inputs import NORMAL, Sizes, entry
from amdattn.bench.replay import replay
from amdattn.cli.output import progress_bar
from amdattn.device import manifest
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Launch
from amdattn.ops.attention import select
from amdattn.ops.attention.execution import AttentionPlan
from amdattn.ops.attention.ordering import IN_ORDER
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.scheduling import ENTRIES, ENTRY_BYTES, SCHEDULE
from amdattn.ops.attention.work import WorkMap, visible_blocks
from benchmarks.attention_costs import (
    HEAD_DIM,
    Cost,
    clock_mhz,
    cost_of,
    find_clk,
    launch_clk,
    merge_cost,
    speed_of,
)

BAR = 1.2
_WAVES = 4
_MOST_ROWS = 32768  # of a mix
_HEADS = ((8, 8), (16, 16), (32, 8), (64, 8))  # of queries, and of keys


@dataclass(frozen=True)
class Mix:
    """Lengths of sequences that attend to themselves."""

    name: str
    lengths: tuple[int, ...]
    num_heads_q: int = 8
    num_heads_kv: int = 8
    causal: bool = False

    @property
    def text(self) -> str:
        """For a table."""
        mask = "causal" if self.causal else ""
        return f"{self.name:30} h{self.num_heads_q}/{self.num_heads_kv} {mask:6}"

    def plan(self) -> AttentionPlan:
        """As a call with these lengths has it."""
        rows, longest = max(sum(self.lengths), 1), max(self.lengths)
        return amdattn.plan_attention(
            *(len(self.lengths), longest, longest, self.num_heads_q, self.num_heads_kv, HEAD_DIM),
            device=amdattn.device_props(), causal=self.causal, total_q=rows, total_kv=rows,
        )  # fmt: skip

    def tile_clk(self, kernel: KernelSpec, length: int, q_start: int, parts: int) -> float:
        """Of a tile of a sequence, or of the longest of its parts."""
        problem = AttentionProblem(1, length, length, 1, 1, HEAD_DIM, causal=self.causal)
        masked = kernel.tile["q"] // kernel.tile["kv"] if self.causal else 0
        blocks = _blocks(problem, kernel, q_start)
        return _tile_clk(cost_of(kernel.name), blocks, masked, parts)

    def share(self, kernel: KernelSpec) -> float:
        """Of a CU: all tiles, whole, one after the other."""
        tiles = sum(
            self.tile_clk(kernel, length, q_start, 1)
            for length in self.lengths
            for q_start in range(0, length, kernel.tile["q"])
        )
        return tiles * self.num_heads_q / clocks(amdattn.device_props()).num_cus

    def alone(self) -> AttentionPlan:
        """Of the longest sequence."""
        longest = max(self.lengths)
        return amdattn.plan_attention(
            *(1, longest, longest, self.num_heads_q, self.num_heads_kv, HEAD_DIM),
            device=amdattn.device_props(), causal=self.causal,
        )  # fmt: skip


WORST = (
    Mix("4096 + 7 x 128", (4096,) + (128,) * 7),
    Mix("4096 + 7 x 128", (4096,) + (128,) * 7, causal=True),
    Mix("63 x 1 + 8192", (1,) * 63 + (8192,)),
    Mix("16384 + 15 x 1024", (16384,) + (1024,) * 15, causal=True),
    Mix("39 x 256: a round and 8 tiles", (256,) * 39),
    Mix("20 x 1024: two rounds and 32", (1024,) * 20),
    Mix("64 x 257", (257,) * 64),
    Mix("64 x 1", (1,) * 64),
    Mix("2 x 3000", (3000,) * 2, 16, 16),
    Mix("rising 64 .. 2048", tuple(range(64, 2049, 64))),
    Mix("rising 64 .. 2048", tuple(range(64, 2049, 64)), 32, 8, True),
    Mix("2048, then 256 empty", (2048,) + (0,) * 256),
)


def random_mixes(count: int, seed: int) -> Iterator[Mix]:
    """Of 1 to 64 sequences of up to 256 to 8192 rows."""
    rng = np.random.default_rng(seed)
    kinds = ("uniform", "log-uniform", "one long", "two kinds")
    for nth in range(count):
        batch = round(2 ** rng.uniform(0, 6))
        longest = round(2 ** rng.uniform(8, 13))
        kind = kinds[nth % len(kinds)]
        if kind == "uniform":
            lengths = rng.integers(1, longest + 1, batch)
        elif kind == "log-uniform":
            lengths = np.rint(2 ** rng.uniform(0, math.log2(longest), batch)).astype(int)
        elif kind == "one long":
            lengths = rng.integers(1, max(longest // 8, 2), batch)
            lengths[rng.integers(batch)] = longest
        else:
            lengths = np.where(rng.random(batch) < 0.3, longest, max(longest // 6, 1))
        kept = max(1, int(np.searchsorted(np.cumsum(lengths), _MOST_ROWS)))
        heads = _HEADS[rng.integers(len(_HEADS))]
        some = tuple(lengths[:kept].tolist())
        name = f"{kind}, {len(some)} up to {max(some)}"
        yield Mix(name, some, *heads, bool(rng.random() < 0.5))


@dataclass(frozen=True)
class Tiles:
    """Workgroups of a launch in their order, and what each takes alone; 0 clk: none."""

    clk: NDArray[np.float64]
    partials: int


def _tile_clk(cost: Cost, blocks: int, masked: int, parts: int) -> float:
    """Of the longest part of a tile."""
    of_part = -(-blocks // parts)
    edge = min(masked, of_part) * cost.masked_block
    return cost.outside + of_part * cost.block + edge + (cost.part if parts > 1 else 0)


def _blocks(problem: AttentionProblem, kernel: KernelSpec, q_start: int) -> int:
    ((begin, end),) = visible_blocks(problem, kernel.tile["q"], kernel.tile["kv"], [q_start])
    return end - begin


def scheduled(mix: Mix, plan: AttentionPlan) -> tuple[Tiles, float]:
    """What the device makes of the lengths, and the clocks of that."""
    kernel = plan.forward.kernel
    rows = max(sum(mix.lengths), 1)
    sums = np.cumsum([0, *mix.lengths]).astype(np.int32)
    q = amdattn.empty((rows, mix.num_heads_q, HEAD_DIM), "bfloat16")
    k = amdattn.empty((rows, mix.num_heads_kv, HEAD_DIM), "bfloat16")
    workspace = amdattn.empty((max(plan.workspace.total_bytes, 1),), "uint8")
    with virtual.profile(clock_mhz=clock_mhz(), simulated_workgroups=1) as profile:
        plan.run(q, k, k, cu_seqlens_q=amdattn.asarray(sums), cu_seqlens_k=amdattn.asarray(sums),
                 workspace=workspace)  # fmt: skip

    def clk(length: int, q_start: int, parts: int) -> float:
        return mix.tile_clk(kernel, length, q_start, parts)

    if dict(plan.forward.args)["whole_tiles"] == IN_ORDER:
        return in_order(mix, plan), 0.0
    if plan.launches[0].kernel.op != SCHEDULE:
        work = WorkMap.of(plan.problem, plan.forward)
        items = [work.item(n) for n in range(work.num_workgroups)]
        lengths = [mix.lengths[item.batch] for item in items]
        each = [
            clk(length, item.q_begin, 1 if item.part < 0 else work.parts)
            if item.q_begin < length
            else 0.0
            for item, length in zip(items, lengths, strict=True)
        ]
        return Tiles(np.array(each), work.num_workgroups - work.whole_tiles), 0.0
    region = plan.workspace[ENTRIES]
    words = workspace.numpy()[region.offset : region.offset + region.nbytes].view(np.int32)
    each, partials = [], 0
    for q_start, length, _, _, _, _, _, parts in words.reshape(-1, ENTRY_BYTES // 4).tolist():
        each.append(clk(length, q_start, parts) if length else 0.0)
        partials += parts > 1
    heads = mix.num_heads_q
    tiles = Tiles(np.repeat(each, heads), partials * heads)
    return tiles, profile.launches[0].cycles + launch_clk()


def in_order(mix: Mix, plan: AttentionPlan) -> Tiles:
    """As workgroups find their tiles themselves: asm_src/attn/tile_order.h."""
    args: dict[str, Any] = dict(plan.forward.args)
    kernel, heads = plan.forward.kernel, mix.num_heads_q
    rows, parts = kernel.tile["q"], args["parts"]
    tiles = [
        (min(q_start + rows, length) if mix.causal else length, length, q_start)
        for length in mix.lengths
        for q_start in range(0, length, rows)
    ]
    classes = [keys >> args["num_heads_q_shift"] for keys, _, _ in tiles]
    tiles = [tiles[n] for n in sorted(range(len(tiles)), key=lambda n: -classes[n])]
    in_parts = sum(of >= args["num_heads_q_inverse"] for of in classes) if parts > 1 else 0
    if in_parts * heads > args["merge_tiles"]:
        in_parts = 0
    each = []
    for nth, (_, length, q_start) in enumerate(tiles):
        of_tile = parts if nth < in_parts else 1
        each += [mix.tile_clk(kernel, length, q_start, of_tile)] * of_tile
    empty = plan.forward.num_workgroups // heads - len(each)
    return Tiles(np.repeat(each + [0.0] * empty, heads), in_parts * parts * heads)


_EMPTY_CLK = 2000.0  # of a workgroup that has nothing to do


def _forward_clk(clk: NDArray[np.float64], kernel: KernelSpec, finds_tile: bool = False) -> float:
    """Until the last XCD is done."""
    of_device = clocks(amdattn.device_props())
    residents = workgroups_per_cu(kernel, amdattn.device_props())[0]
    speed = speed_of(kernel.name)
    took = np.where(clk == 0, _EMPTY_CLK, clk)
    if finds_tile:
        first, later = find_clk(kernel.name)
        took[: residents * of_device.num_cus] += first
        took[residents * of_device.num_cus :] += later
    xcds = [took[xcd :: of_device.num_xcds] for xcd in range(of_device.num_xcds)]
    return max(
        replay(some.tolist(), speed, residents, _WAVES, of_device).cycles
        for some in xcds if len(some)
    )  # fmt: skip


def _merge_clk(plan: AttentionPlan, partials: int) -> float:
    if not any(launch.kernel.op == select.MERGE for launch in plan.launches):
        return 0.0
    fixed, each = merge_cost(plan.forward.kernel.name)
    return launch_clk() + fixed + each * partials


def alone_clk(mix: Mix) -> float:
    """Of the longest sequence."""
    plan = mix.alone()
    launch: Launch = plan.forward
    cost, work = cost_of(launch.kernel.name), WorkMap.of(plan.problem, launch)
    kernel = launch.kernel
    masked = kernel.tile["q"] // kernel.tile["kv"] if mix.causal else 0
    items = [work.item(n) for n in range(work.num_workgroups)]
    each = [
        _tile_clk(cost, item.kv_end - item.kv_begin, masked, 1)
        + (cost.part if item.part >= 0 else 0)
        for item in items
    ]
    partials = sum(item.part >= 0 for item in items)
    return _forward_clk(np.array(each), kernel) + _merge_clk(plan, partials)


@dataclass(frozen=True)
class Row:
    """A mix with its figures, clk."""

    mix: Mix
    kernel: str
    clk: float
    alone: float
    share: float  # of a CU of all tiles, of the kernel for which that is least
    schedule: float
    merge: float
    partials: int

    @property
    def bound(self) -> float:
        """That the time is compared with."""
        return max(self.alone, self.share)

    @property
    def ratio(self) -> float:
        """Time by bound."""
        return self.clk / self.bound


def measure(mix: Mix) -> Row:
    """Its figures."""
    plan = mix.plan()
    tiles, schedule = scheduled(mix, plan)
    kernel = plan.forward.kernel
    merge = _merge_clk(plan, tiles.partials)
    finds_tile = dict(plan.forward.args)["whole_tiles"] == IN_ORDER
    clk = schedule + _forward_clk(tiles.clk, kernel, finds_tile) + merge
    rows = manifest.kernels()
    nearest, _ = select.nearest_first(rows, plan.problem, amdattn.device_props())[0]
    share = min(map(mix.share, select.with_other_tiles(rows, nearest, plan.problem)))
    return Row(mix, kernel.name, clk, alone_clk(mix), share, schedule, merge, tiles.partials)


def simulated_clk(mix: Mix) -> float:
    """The whole operation, of one XCD."""
    element = as_dtype("bfloat16").numpy()
    rows, longest = sum(mix.lengths), max(mix.lengths)
    sizes = Sizes(1, rows, rows, mix.num_heads_q, mix.num_heads_kv, HEAD_DIM, HEAD_DIM)
    q, k, v = (entry(NORMAL, sizes, name, 0).astype(element) for name in "qkv")
    sums = np.cumsum([0, *mix.lengths]).astype(np.int32)
    with virtual.profile(clock_mhz=clock_mhz()) as profile:
        amdattn.flash_attn_varlen_func(q, k, v, sums, sums, longest, longest, causal=mix.causal)
    gaps = launch_clk() * (len(profile.launches) - 1)
    return sum(float(launch.cycles) for launch in profile.launches) + gaps


def print_row(row: Row) -> None:
    """One line of the table."""
    print(
        f"{row.mix.text} {row.clk:10.0f} {row.schedule:8.0f} {row.merge:6.0f} {row.alone:10.0f} "
        f"{row.share:10.0f} {row.partials:8} "
        f"{row.ratio:6.2f}{'' if row.ratio <= BAR else '  beyond'}",
        flush=True,
    )


def print_sum(title: str, rows: Sequence[Row]) -> None:
    """Of a group of mixes."""
    ratios = np.array([row.ratio for row in rows])
    within = int((ratios <= BAR).sum())
    print(
        f"{title}: {within} of {len(rows)} within {BAR}; median {np.median(ratios):.2f}, "
        f"geometric mean {np.exp(np.log(ratios).mean()):.2f}, greatest {ratios.max():.2f}"
    )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mixes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--full", type=int, default=0, metavar="N")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(
        f"{'modelled clk':43} {'time':>10} {'schedule':>8} {'merge':>6} {'alone':>10} "
        f"{'tiles/CUs':>10} partials  ratio"
    )
    worst = []
    for mix in WORST:
        worst.append(measure(mix))
        print_row(worst[-1])
    rows = []
    mixes = list(random_mixes(arguments.mixes, arguments.seed))
    with progress_bar() as progress:
        task = progress.add_task("mixes", total=len(mixes))
        for mix in mixes:
            rows.append(measure(mix))
            progress.advance(task)
    for row in sorted(rows, key=lambda row: -row.ratio)[:20]:
        print_row(row)
    print_sum("worst cases", worst)
    if rows:
        print_sum("random mixes", rows)
    for row in [*worst, *rows][: arguments.full]:
        clk = simulated_clk(row.mix)
        print(f"{row.mix.text} simulated {clk:.0f}, replayed {row.clk / clk - 1:+.1%}", flush=True)
    if arguments.json:
        found = [{**asdict(row), "bound": row.bound, "ratio": row.ratio} for row in worst + rows]
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
