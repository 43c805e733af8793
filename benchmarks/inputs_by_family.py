"""Modelled time of every family of attention, by what inputs hold.

    python -m benchmarks.inputs_by_family [--class NAME ...] [--family NAME ...] [--dtype float16]

A row for each class of amdattn/bench/inputs.py and for a sink, a column for each family:
microseconds of N(0, 1) at the peak clock of the device that AMDATTN_DEVICE names, which is also the
one that is simulated, no launch counted, and others' times beside them. Whole operations of one
XCD, cold caches. `benchmarks/attention_data.py` has the forward kernels by themselves.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import amdattn
from amdattn import tuning, virtual
from amdattn.arrays.buffers import DeviceArray
from amdattn.bench import cache_inputs
from amdattn.bench.inputs import CLASSES, NORMAL, Inputs, Sizes, entry
from amdattn.bench.planned import Planned
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.ops import registry
from amdattn.ops.attention.problem import AttentionProblem

SINK = "a sink of 30 nats"  # no key, over normal inputs
_SINK_NATS = 30.0
NAMES = (
    *("model-like", "normal", "worst", "scores of sd 4", "scores of sd 8"),
    *("norms of K lognormal 0.5", "scores rising by 25 nats"),
    *("middle key 25 nats above", "last key 25 nats above", SINK),
)


@dataclass(frozen=True)
class Family:
    """An operation of the registry at one size.

    Attributes
    ----------
    sizes : dict
        Of its command's options; the others are as by default.
    lengths : tuple of int
        Rows of sequences that attend to themselves, of attention over several lengths.
    """

    operation: str
    sizes: Mapping[str, Any]
    lengths: tuple[int, ...] = field(default=())

    def planned(self, **others: Any) -> Planned:
        """For the bound device, with other sizes."""
        operation = registry.operation(self.operation)
        defaults = {option.name: option.default for option in operation.options}
        sizes: dict[str, Any] = {"head_dim": 128, **self.sizes}
        if self.lengths:
            longest, total = max(self.lengths), sum(self.lengths)
            sizes |= {"batch": len(self.lengths), "seqlen_q": longest, "seqlen_kv": longest}
            sizes |= {"total_q": total, "total_kv": total}
        return Planned(operation, operation.problem(**(defaults | sizes | others)))

    def operands(self, planned: Planned, inputs: Inputs) -> dict[str, DeviceArray]:
        """Q, k and v, and what says whose rows they are."""
        if isinstance(planned.problem, AttentionProblem):
            return _of_attention(planned.problem, self.lengths, inputs)
        return cache_inputs.operands(planned.plan(), inputs)

    def us(self, name: str, **others: Any) -> float:
        """Of all launches, over a class or SINK, with other sizes."""
        is_sink = name == SINK
        planned = self.planned(**others, **({"sinks": True} if is_sink else {}))
        plan = planned.plan()
        given = self.operands(planned, NORMAL if is_sink else CLASSES[name])
        if is_sink:
            nats = np.full(self.sizes["heads_q"], _SINK_NATS, np.float32)
            given["sinks"] = amdattn.asarray(nats)
        run = tuning.runner(plan, given=given)
        if len(plan.launches) > 1:  # of a profile one XCD alone is run: others read all of a launch
            run()
            runtime.synchronize()
        ghz = amdattn.device_props().peak_clock_ghz
        profiles = virtual.profiled(run, clock_mhz=round(ghz * 1e3))
        return sum(launch.cycles for launch in profiles) / ghz / 1e3


def _of_attention(
    problem: AttentionProblem, lengths: tuple[int, ...], inputs: Inputs
) -> dict[str, DeviceArray]:
    """Q, k and v; of several lengths packed, with the sums of the lengths."""
    p, element = problem, as_dtype(problem.dtype).numpy()

    def sizes(rows: int, keys: int) -> Sizes:
        heads = p.num_heads_q, p.num_heads_kv, p.head_dim, p.head_dim_v
        return Sizes(p.batch, rows, keys, *heads)

    each = [sizes(n, n) for n in lengths] or [sizes(p.seqlen_q, p.seqlen_kv)] * p.batch
    join = np.concatenate if lengths else np.stack
    made = {
        which: join([entry(inputs, of, which, b).astype(element) for b, of in enumerate(each)])
        for which in "qkv"
    }
    if lengths:
        sums = np.cumsum((0, *lengths), dtype=np.int32)
        made |= {"cu_seqlens_q": sums, "cu_seqlens_kv": sums}
    return {name: amdattn.asarray(array) for name, array in made.items()}


# 56 heads are all seven kinds of "model-like" on an XCD, which has every eighth head.
_HEADS: Mapping[str, Any] = {"heads_q": 56, "heads_kv": 56}
_PAGES: Mapping[str, Any] = {"heads_q": 64, "heads_kv": 8, "page_size": 16}
FAMILIES: Mapping[str, Family] = {
    "causal": Family("attention", {**_HEADS, "seqlen_q": 2048, "causal": True}),
    "window": Family("attention", {**_HEADS, "seqlen_q": 2048, "window_size": (1023, 0)}),
    "varlen": Family("attention", {**_HEADS, "causal": True}, (2048, 1024, 512, 512)),
    "parts": Family("attention", {**_HEADS, "seqlen_q": 256, "seqlen_kv": 4096, "num_splits": 4}),
    # gpt-oss's layers with a window.
    "narrow": Family(
        "attention",
        {
            **{"heads_q": 64, "heads_kv": 8, "seqlen_q": 1024, "head_dim": 64, "causal": True},
            **{"window_size": (127, -1)},
        },
    ),
    "decode": Family("decode", {**_PAGES, "batch": 4, "seqlen_kv": 4096}),
    "prefill": Family(
        "prefill",
        {
            **{"batch": 1, "seqlen_q": 256, "seqlen_kv": 4096, "heads_q": 16, "heads_kv": 2},
            **{"causal": True, "page_size": 16},
        },
    ),
    # Kernels of decoding throughout; the forward kernels over the prefix; and these alone.
    "cascade": Family("cascade", {**_PAGES, "batch": 8, "seqlen_kv": 512, "prefix_len": 2048}),
    "cascade of 128": Family(
        "cascade", {**_PAGES, "batch": 128, "seqlen_kv": 128, "prefix_len": 4096}
    ),
    "cascade of chunks": Family(
        "cascade", {**_PAGES, "batch": 4, "seqlen_q": 64, "seqlen_kv": 128, "prefix_len": 2048}
    ),
}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class", dest="names", nargs="+", choices=(*CLASSES, SINK), default=NAMES)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--dtype", choices=("bfloat16", "float16"), default="bfloat16")
    options = parser.parse_args()
    dtype = options.dtype
    props = amdattn.device_props()
    normal = {}
    print(f"modelled, {props.name}, at {props.peak_clock_ghz} GHz, no launch counted")
    for name in options.family:
        planned = FAMILIES[name].planned(dtype=dtype)
        normal[name] = FAMILIES[name].us(NORMAL.name, dtype=dtype)
        kernels = " + ".join(launch.kernel.name for launch in planned.plan().launches)
        print(f"- {name}: {planned}; {kernels}", flush=True)
    print(f"\n| {props.arch} | {' | '.join(options.family)} |")
    print("|---|" + "--:|" * len(options.family))
    for of in options.names:
        print(f"| {of} |", end="", flush=True)
        for family, us in normal.items():
            is_normal = of == NORMAL.name
            beside = 1 if is_normal else FAMILIES[family].us(of, dtype=dtype) / us
            print(f" {us:.1f} us |" if is_normal else f" {beside:.3f} |", end="", flush=True)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
