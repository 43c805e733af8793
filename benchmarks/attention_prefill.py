"""Prints what chunks of queries over a cache in pages take, modelled: copies, and attention.

    python -m benchmarks.attention_prefill [--shapes B,QUERIES,KEYS,Q/KV ...] [--copies-only]
                                           [--page-size P] [--inputs NAME ...]
                                           [--num-splits N ...]

bfloat16, 128 columns, causal, QUERIES of the KEYS are appended (with rotary); caches are cold. Of
the bound device at its peak clock; AMDATTN_DEVICE says which. "in place" is the same over a cache
without pages, of which nothing is copied but queries, since they are turned. Launches but for the
first one are in the time of all. Of each of the inputs (`amdattn.bench.inputs`) there is a row, by
default of N(0, 1) alone; what copies move does not matter for them. --num-splits has a row for each
number of parts along keys, of which 0 is the plan's own choice. --copies-only leaves attention out,
which takes the virtual device a minute for some TFLOP.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from dataclasses import dataclass

import amdattn
from amdattn import tuning, virtual
from amdattn.bench.cache_inputs import operands as cache_operands
from amdattn.bench.inputs import NORMAL, Inputs, named
from amdattn.device import runtime
from amdattn.ops.cache_attention.kernels import CACHE_ROWS
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan

_HEAD_DIM, _ROTARY = 128, 128
_SHAPES = ("1,2048,8192,8/1", "1,2048,32768,8/1", "4,512,8192,8/1", "16,128,4096,8/1")


@dataclass(frozen=True)
class Shape:
    """Sequences, queries and keys of each, heads."""

    batch: int
    queries: int
    keys: int
    heads_q: int
    heads_kv: int

    @staticmethod
    def read(text: str) -> Shape:
        """Of B,QUERIES,KEYS,Q/KV."""
        batch, queries, keys, heads = text.split(",")
        q, kv = heads.split("/")
        return Shape(int(batch), int(queries), int(keys), int(q), int(kv))

    def plan(self, page_size: int, num_splits: int = 0) -> PrefillPlan:
        """As a call has it; without pages of a cache that is as long."""
        used = -(-self.keys // page_size) if page_size else 0
        return amdattn.plan_prefill(
            *(self.batch, self.queries, self.keys, self.heads_q, self.heads_kv, _HEAD_DIM),
            device=amdattn.device_props(),
            causal=True,
            seqlen_new=self.queries,
            cache_seqlens=True,
            page_size=page_size,
            num_pages=self.batch * used if page_size else self.batch,
            num_splits=num_splits,
            rotary_dim=_ROTARY,
            rotary_positions=self.keys + self.queries,
        )


def launches_us(
    plan: PrefillPlan, clock_mhz: int, only_copies: bool, inputs: Inputs
) -> list[float]:
    """Of each launch in turn, none waited for."""
    copies = dataclasses.replace(plan, launches=plan.launches[:1])
    vars(copies)["_forward"] = plan._forward  # which says what strides it takes
    assert copies.launches[0].kernel.op == CACHE_ROWS
    operands = tuning.random_operands(plan) | cache_operands(plan, inputs)
    views, _ = plan.views_of({name: operands[name] for name in plan.input_names}, None)
    workspace = plan.new_workspace()

    def run(of: PrefillPlan) -> None:
        of.execute(None, views, (operands["out"], None), "", 0, workspace)

    if not only_copies:  # of a profile one XCD alone is run: not all rows are copied
        run(copies)
        runtime.synchronize()
    with virtual.profile(clock_mhz=clock_mhz) as found:
        run(copies if only_copies else plan)
        runtime.synchronize()
    return [launch.cycles / clock_mhz for launch in found.launches]


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=_SHAPES, metavar="B,QUERIES,KEYS,Q/KV")
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--inputs", nargs="+", default=[NORMAL.name], metavar="NAME")
    parser.add_argument("--num-splits", nargs="+", type=int, default=[0], metavar="N")
    parser.add_argument("--copies-only", action="store_true")
    options = parser.parse_args()
    props = amdattn.device_props()
    clock_mhz, gap = round(props.peak_clock_ghz * 1e3), props.architecture.launch_us
    print(f"{props.name}: us, modelled at {clock_mhz} MHz, pages of {options.page_size}\n")
    print(
        "| sequences x queries over keys, heads | copied, MB | copies | TB/s | in place |", end=""
    )
    print("" if options.copies_only else " attention | all | all in place |")
    print("|---|--:|--:|--:|--:|" + ("" if options.copies_only else "--:|--:|--:|"))
    asked = itertools.product(options.shapes, map(named, options.inputs), options.num_splits)
    for text, inputs, parts in asked:
        shape = Shape.read(text)
        moved = shape.plan(options.page_size).problem
        nbytes = moved.copied_bytes + moved.appended_bytes
        paged, in_place = (
            launches_us(shape.plan(size, parts), clock_mhz, options.copies_only, inputs)
            for size in (options.page_size, 0)
        )
        heads = f"{shape.heads_q}/{shape.heads_kv}"
        of = f", {inputs.name}" * (inputs != NORMAL) + f", in {parts} parts" * (parts > 0)
        row = [f"{shape.batch} x {shape.queries} over {shape.keys}, {heads}{of}"]
        row += [f"{nbytes / 1e6:.0f}", f"{paged[0]:.1f}", f"{nbytes / paged[0] / 1e6:.2f}"]
        row.append(f"{in_place[0]:.1f}")
        if not options.copies_only:
            for one in (paged[1:], paged, in_place):
                row.append(f"{sum(one) + gap * (len(one) - 1):.1f}")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
