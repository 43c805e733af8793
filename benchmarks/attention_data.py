"""Modelled time of attention forward by what its inputs hold: one workgroup, beside N(0, 1).

    python benchmarks/attention_data.py [--kernel PATTERN ...] [--keys 4096] [--class NAME ...]
                                        [--inputs FILE.npz ...]

with AMDATTN_DEVICE=virtual:gfx950 for the kernels of that architecture. Prints a row for each class
of amdattn/bench/inputs.py and of sinks, model-like first: clk of each kernel beside those of
"normal". Of classes whose heads differ, and of files, a row is the mean of all heads and the
slowest one: of a file --heads of them, spread evenly.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import amdattn
from amdattn.bench.inputs import NORMAL, FileInputs, Inputs, ScoreClass, read_inputs
from amdattn.device import manifest
from amdattn.ops.attention import select
from tests.support.attention.score_classes import CLASSES, lifetime


def heads_of(inputs: Inputs, most: int) -> Sequence[int]:
    """Which heads stand for all of them."""
    if isinstance(inputs, FileInputs):
        count = inputs.arrays["k"].shape[2]
        return sorted({i * count // most for i in range(most)})
    assert isinstance(inputs, ScoreClass)
    return range(len(inputs.heads))


def cell(kernel: Any, keys: int, name: str, inputs: Inputs, heads: Sequence[int], of: int) -> str:
    """Time beside that of N(0, 1); of several heads the mean, and the slowest."""
    times = [lifetime(kernel, keys, name, inputs, head) / of for head in heads]
    mean = sum(times) / len(times)
    return f"{mean:.3f}" + f", {max(times):.3f}" * (len(times) > 1)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", nargs="+", default=["attn_fwd_bf16_d128_rtne"])
    parser.add_argument("--keys", type=int, default=4096)
    parser.add_argument("--class", dest="names", nargs="*", choices=CLASSES, default=list(CLASSES))
    parser.add_argument("--inputs", type=Path, nargs="+", default=[], metavar="FILE.npz")
    parser.add_argument("--heads", type=int, default=12, help="of a file, at most")
    arguments = parser.parse_args()
    arch = amdattn.device_props().arch
    kernels = [
        k
        for k in manifest.kernels()
        if k.arch == arch
        and k.op == select.ATTENTION
        and any(fnmatch.fnmatchcase(k.name, p) for p in arguments.kernel)
    ]
    files = {path.name: read_inputs(path, is_tiled=True) for path in arguments.inputs}
    classes: dict[str, Inputs] = {name: CLASSES[name] for name in arguments.names}
    names = [k.name.removeprefix("attn_fwd_") for k in kernels]
    print(f"modelled, {arch}, {arguments.keys} keys, one workgroup, no launch counted")
    print("| inputs | " + " | ".join(names) + " |")
    print("|---|" + "--:|" * len(names))
    normal = {k.name: lifetime(k, arguments.keys, NORMAL.name) for k in kernels}
    for name, inputs in {**files, **classes}.items():
        heads = heads_of(inputs, arguments.heads)
        many = f", mean of {len(heads)} heads, slowest" * (len(heads) > 1)
        print(f"| {name}{many} |", end="")
        for k in kernels:
            if inputs is NORMAL and name == NORMAL.name:
                print(f" {normal[k.name]} clk |", end="", flush=True)
                continue
            found = cell(k, arguments.keys, name, inputs, heads, normal[k.name])
            print(f" {found} |", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
