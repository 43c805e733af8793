"""Modelled time of attention forward by what its inputs hold: one workgroup, beside N(0, 1).

    python benchmarks/attention_data.py [--kernel PATTERN ...] [--keys 4096] [--class NAME ...]
    python benchmarks/attention_data.py --adversary [--kernel PATTERN ...] [--keys 4096]

with AMDATTN_DEVICE=virtual:gfx950 for the kernels of that architecture. Prints a row for each class
of tests/support/attention/score_classes.py: clk of each kernel beside those of its first class.
With --adversary, for each class of tests/support/adversary/classes.py, which are meant to break the
kernels, beside normal numbers of the same sizes and options: tiles that take several times as long
are done again with exact maxima.
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

import numpy as np

import amdattn
from amdattn.device import manifest
from amdattn.ops.attention import select
from tests.support.adversary import launches
from tests.support.adversary.classes import CLASSES as ADVERSARY
from tests.support.attention.score_classes import CLASSES, lifetime, lifetime_of


def time_of(launch: launches.Launch) -> int:
    """Modelled clk of its longest workgroup."""
    call, arrays = launch.call()
    plan = call.plan(*arrays)
    return lifetime_of(lambda: plan.run(*arrays, sinks=call.sinks))


def beside_normal(kernel: str, name: str, keys: int) -> float:
    """Time of a launch of the adversary, beside one of N(0, 1) of its sizes and options."""
    (member,) = (k for k in launches.kernels() if k.name == kernel)
    dims = member.head_dim, member.head_dim_v
    launch = launches.Launch(
        np.random.default_rng([*name.encode()]), member, 384, keys, (1, 1), dims
    )
    launch.options = {"num_splits": 1}
    ADVERSARY[name](launch)
    time = time_of(launch)
    launch.__post_init__()  # normal numbers
    if launch.sinks is not None:
        launch.sinks = np.zeros_like(launch.sinks)
    return time / time_of(launch)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", nargs="+", default=["attn_fwd_bf16_d128_rtne"])
    parser.add_argument("--keys", type=int, default=4096)
    parser.add_argument("--class", dest="names", nargs="+", choices=CLASSES, default=list(CLASSES))
    parser.add_argument("--adversary", action="store_true")
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
    if arguments.adversary:
        for name in ADVERSARY:
            times = (f"{beside_normal(k.name, name, arguments.keys):.3f}" for k in kernels)
            print(f"| {name} | {' | '.join(times)} |", flush=True)
        return
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
