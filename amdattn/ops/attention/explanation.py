"""Texts in which a plan of attention explains tiles, their order, and their parts along KV."""

from __future__ import annotations

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.ops.attention.cost import merges_itself, merging_clk, partial_bytes
from amdattn.ops.attention.kv_split import Choice, Split
from amdattn.ops.attention.work import GRID_XCDS, WorkMap


def tiles_text(work: WorkMap) -> str:
    """The text about the rows and keys of tiles, and how much of them is used."""
    problem = work.problem
    kv_tiles = -(-problem.seqlen_kv // work.kv_tile)
    of_heads = f" of {work.tile_heads} heads" if work.tile_heads > 1 else ""
    text = (
        f"q {work.q_tiles} x {work.q_tile} rows "
        f"({problem.seqlen_q / (work.q_tiles * work.q_tile):.1%} used)"
        f"{of_heads}, kv {kv_tiles} x {work.kv_tile} rows "
        f"({problem.seqlen_kv / (kv_tiles * work.kv_tile):.1%} used)"
    )
    if work.column_groups > 1:
        text += f", head_dim_v in {work.column_groups} groups of columns"
    return text + (", at the greatest lengths" if problem.varlen else "")


def order_text(work: WorkMap) -> str:
    """The text about the order of tiles."""
    if not work.by_length:
        return "head by head, neighbouring tiles on one XCD"
    heads = "heads"
    if work.tile_heads > 1:
        heads = f"groups of {work.tile_heads} heads"
    if work.column_groups > 1:
        heads = "groups of a head's columns"
    before, last = work.last_chunk
    if not before:
        return f"longest tiles first, of all {last} {heads} at once"
    some = f"{work.heads_at_once} {heads} ({work.heads_at_once // GRID_XCDS} an XCD)"
    times = f"{before} time{'s' * (before > 1)}"
    return f"longest tiles first, of {some} at once, {times}, then of the last {last}"


def split_text(
    work: WorkMap, kernel: KernelSpec, choice: Choice, props: DeviceProps, keeps_floats: bool
) -> str:
    """The text about the chosen split and what it was compared with, in modelled clk."""
    if work.tile_heads > 1:
        return _head_split_text(choice)
    if kernel.accepts["max_num_splits"] <= 1:
        return "none: this kernel walks the whole KV range of its q tile"
    best, unsplit = choice.best, choice.considered[0]

    def clk(value: float) -> str:
        return f"{value:,.0f} clk".replace(",", " ")

    tried = "; ".join(
        f"{'no split' if s.parts == 1 else f'{s.tiles} tiles in {_parts_text(s)}'} {clk(s.clk)}"
        for s in choice.considered
    )
    if best.parts == 1:
        why = "num_splits=1" if work.problem.num_splits == 1 else f"modelled: {tried}"
        return f"none ({why})"
    results = best.tiles * best.parts
    in_launch = merges_itself(kernel, best.tiles, best.parts, props)
    who = "the last part to arrive" if in_launch else "a launch of its own"
    why = "modelled"
    if keeps_floats:
        why = "results stay float32, as those of parts do; modelled"
    elif work.problem.num_splits:
        why = "num_splits was given; modelled"
    merging = clk(merging_clk(kernel, best.tiles, best.parts, props))
    return (
        f"the last {best.tiles} of {work.tiles} tiles in {_parts_text(best)} each "
        f"({why}: {tried}; {merging} of it for merging {results} partial results of "
        f"{partial_bytes(kernel, 1)} bytes, by {who}; {1 - best.clk / unsplit.clk:.1%} saved)"
    )


def _parts_text(split: Split) -> str:
    blocks = f", all but the last of {split.part_blocks} blocks," if split.part_blocks else ""
    return f"{split.parts} parts{blocks}"


def _head_split_text(choice: Choice) -> str:
    """The text about the split of tiles with several heads."""
    tried = "; ".join(
        f"{s.tiles} tiles in {s.parts} parts {s.clk:.0f} clk" for s in choice.considered[1:]
    )
    best, unsplit = choice.best, choice.considered[0]
    chosen = f"the last {best.tiles} tiles in {best.parts} parts" if best.tiles else "none"
    return f"none; heads of {chosen} (modelled: no split {unsplit.clk:.0f} clk; {tried})"
