"""Modelled time of attention forward by what its inputs hold: one workgroup, beside N(0, 1).

    python benchmarks/attention_data.py [--kernel PATTERN ...] [--keys 4096] [--class NAME ...]

with AMDATTN_DEVICE=virtual:gfx950 for the kernels of that architecture. Prints a row for each class
of tests/support/attention/score_classes.py: clk of each kernel beside those of its first class.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import amdattn
from amdattn.device import manifest
from amdattn.ops.attention import select
from tests.support.attention.score_classes import CLASSES, lifetime


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", nargs="+", default=["attn_fwd_bf16_d128_rtne"])
    parser.add_argument("--keys", type=int, default=4096)
    parser.add_argument("--class", dest="names", nargs="+", choices=CLASSES, default=list(CLASSES))
    arguments = parser.parse_args()
    arch = amdattn.device_props().arch
    kernels = [
        k
        for k in manifest.kernels()
        if k.arch == arch
        and k.op == select.ATTENTION
        and any(fnmatch.fnmatchcase(k.name, p) for p in arguments.kernel)
    ]
    names = [k.name.removeprefix("attn_fwd_") for k in kernels]
    print(f"modelled, {arch}, {arguments.keys} keys")
    print("| inputs | " + " | ".join(names) + " |")
    print("|---|" + "--:|" * len(names))
    normal = {k.name: lifetime(k, arguments.keys, "N(0,1)") for k in kernels}
    clk = " | ".join(f"{normal[k.name]} clk" for k in kernels)
    print(f"| N(0,1) | {clk} |", flush=True)
    for name in arguments.names:
        if name == "N(0,1)":
            continue
        print(f"| {name} |", end="")
        for k in kernels:
            time = lifetime(k, arguments.keys, name)
            print(f" {time / normal[k.name]:.3f} |", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
