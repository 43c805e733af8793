"""Prints attention over a shared prefix as a cascade and without one, modelled.

    python -m benchmarks.cascade [--shapes B,PREFIX,OWN,Q/KV ...] [--pages]

A step has one query for each sequence, in bfloat16 with 128 columns and cold caches: all sequences
share PREFIX keys, and each has OWN keys in pages of 16. Times are those of the bound device, which
AMDATTN_DEVICE chooses, at its peak clock. Without a cascade, `flash_attn_with_kvcache` runs over
both, with pages that the tables of all sequences share, so that caches hold them for all but the
first. With --pages, the prefix is in pages of the cache. Times include all launches except the
first. q, k and v hold random numbers; other contents change times by up to 7 %
(`benchmarks/inputs_by_family.py`).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

import amdattn
from amdattn import tuning, virtual
from amdattn.device import runtime

_HEAD_DIM, _PAGE = 128, 16
_SHAPES = (
    *("8,8192,512,8/1", "64,8192,512,8/1", "64,32768,512,8/1", "128,8192,128,8/1"),
    *("8,8192,512,64/8", "64,2048,512,64/8", "64,8192,512,64/8", "128,8192,128,64/8"),
)


@dataclass(frozen=True)
class Shape:
    """Sequences, keys of the prefix and of each, heads."""

    batch: int
    prefix: int
    own: int
    heads_q: int
    heads_kv: int

    @staticmethod
    def read(text: str) -> Shape:
        """Of B,PREFIX,OWN,Q/KV."""
        batch, prefix, own, heads = text.split(",")
        q, kv = heads.split("/")
        return Shape(int(batch), int(prefix), int(own), int(q), int(kv))

    @property
    def heads(self) -> tuple[int, int, int]:
        """As plans take them."""
        return self.heads_q, self.heads_kv, _HEAD_DIM

    @property
    def prefix_bytes(self) -> int:
        """Of its keys and values."""
        return 2 * self.prefix * self.heads_kv * _HEAD_DIM * 2


def modelled(plan: Any, clock_mhz: int, gap: float, **others: Any) -> tuple[float, list[float]]:
    """Us of a run, and of its launches; `others` are operands that are not as they come."""
    operands = tuning.random_operands(plan) | others
    views, _ = plan.views_of({name: operands[name] for name in plan.input_names}, None)
    workspace = plan.new_workspace()
    with virtual.profile(clock_mhz=clock_mhz) as found:
        plan.execute(None, views, (operands["out"], None), "", 0, workspace)
        runtime.synchronize()
    each = [launch.cycles / clock_mhz for launch in found.launches]
    return sum(each) + gap * (len(each) - 1), each


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=_SHAPES, metavar="B,PREFIX,OWN,Q/KV")
    parser.add_argument("--pages", action="store_true")
    options = parser.parse_args()
    props = amdattn.device_props()
    clock_mhz, gap = round(props.peak_clock_ghz * 1e3), props.architecture.launch_us
    print(f"{props.name}: us, modelled at {clock_mhz} MHz, pages of {_PAGE}\n")
    print("| sequences, prefix + own keys, heads | saved, MB | without | cascade | times |", end="")
    print(" its launches |\n|---|--:|--:|--:|--:|---|")
    for text in options.shapes:
        shape = Shape.read(text)
        pages = shape.batch * shape.own // _PAGE
        of_prefix = shape.prefix // _PAGE
        sizes: dict[str, Any] = {"page_size": _PAGE, "cache_seqlens": True, "device": props}
        shared = np.arange(of_prefix, dtype=np.int32)
        of_each = (
            np.random.default_rng(0).permutation(pages).astype(np.int32).reshape(shape.batch, -1)
        )
        table = np.hstack([np.tile(shared, (shape.batch, 1)), of_prefix + of_each]).astype(np.int32)
        whole = amdattn.plan_decode(
            *(shape.batch, 1, shape.prefix + shape.own, *shape.heads),
            num_pages=of_prefix + pages,
            **sizes,
        )
        without, _ = modelled(whole, clock_mhz, gap, block_table=amdattn.asarray(table))
        plan = amdattn.plan_cascade(
            *(shape.batch, 1, shape.own, *shape.heads),
            prefix_len=shape.prefix,
            prefix_pages=of_prefix if options.pages else 0,
            num_pages=pages + (of_prefix if options.pages else 0),
            **sizes,
        )
        us, each = modelled(plan, clock_mhz, gap)
        row = [f"{shape.batch}, {shape.prefix} + {shape.own}, {shape.heads_q}/{shape.heads_kv}"]
        row += [f"{(shape.batch - 1) * shape.prefix_bytes / 1e6:.0f}", f"{without:.1f}"]
        row += [f"{us:.1f}", f"{without / us:.2f}", " + ".join(f"{one:.1f}" for one in each)]
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
