"""Modelled time of every family of attention but the forward kernels, by what inputs hold.

    python -m benchmarks.inputs_by_family [--class NAME ...] [--family NAME ...]

A row for each class of amdattn/bench/inputs.py, a column for each family: narrow windows, decode,
chunks of queries over pages, a cascade; microseconds of N(0, 1) at the peak clock of the device
that AMDATTN_DEVICE names, no launch counted, and others' times beside them. Cold caches, bfloat16.
`benchmarks/attention_data.py` has the forward kernels.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import amdattn
from amdattn.bench.cache_inputs import operands
from amdattn.bench.inputs import CLASSES, NORMAL, ScoreClass
from amdattn.bench.kernels import Functions
from amdattn.bench.operation import run_operation
from amdattn.bench.planned import Planned, run_planned
from amdattn.bench.record import Record
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from amdattn.ops import registry

NAMES = (
    *("model-like", "normal", "worst", "scores of sd 4", "norms of K lognormal 0.5"),
    *("scores rising by 25 nats", "middle key 25 nats above", "last key 25 nats above"),
)
# gpt-oss's layers with a window.
_NARROW = Shape(1, 64, 8, 1024, 1024, 64, causal=True, window=(127, -1), sinks=True)
_SIZES: Mapping[str, dict[str, Any]] = {
    "decode": {"batch": 4, "seqlen_kv": 4096, "heads_q": 64, "heads_kv": 8, "page_size": 16},
    "prefill": {
        **{"batch": 1, "seqlen_q": 256, "seqlen_kv": 4096, "heads_q": 16, "heads_kv": 2},
        **{"causal": True, "page_size": 16},
    },
    "cascade": {
        **{"batch": 8, "seqlen_kv": 512, "prefix_len": 2048, "heads_q": 64, "heads_kv": 8},
        **{"page_size": 16},
    },
}


def narrow(inputs: ScoreClass) -> Record:
    """Of a window of 128 keys."""
    return run_operation(Shipped("rtne"), _NARROW, Functions(), method="full", inputs=inputs).record


def over_cache(name: str) -> Callable[[ScoreClass], Record]:
    """Of an operation of the registry."""
    operation = registry.operation(name)
    defaults = {option.name: option.default for option in operation.options}
    planned = Planned(operation, operation.problem(**(defaults | {"head_dim": 128} | _SIZES[name])))

    def run(inputs: ScoreClass) -> Record:
        given = operands(planned.plan(), inputs)
        return run_planned(planned, inputs=inputs.name, given=given, is_whole=True).record

    return run


FAMILIES: dict[str, Callable[[ScoreClass], Record]] = {
    "narrow": narrow,
    **{name: over_cache(name) for name in _SIZES},
}


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--class", dest="names", nargs="+", choices=CLASSES, default=NAMES)
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    options = parser.parse_args()
    props = amdattn.device_props()
    normal = {name: FAMILIES[name](NORMAL) for name in options.family}
    print(f"modelled, {props.name}, at {props.peak_clock_ghz} GHz, no launch counted")
    for name, record in normal.items():
        print(f"- {name}: {record.shape}; {record.kernel}")
    print(f"\n| {props.arch} | {' | '.join(options.family)} |")
    print("|---|" + "--:|" * len(options.family))
    for of in options.names:
        print(f"| {of} |", end="", flush=True)
        for family in options.family:
            clk = normal[family].cycles or 0.0
            if of == NORMAL.name:
                cell = f"{clk / props.peak_clock_ghz / 1e3:.2f} us"
            else:
                cell = f"{(FAMILIES[family](CLASSES[of]).cycles or 0.0) / clk:.3f}"
            print(f" {cell} |", end="", flush=True)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
