"""Modelled time of attention forward by what its inputs hold: one workgroup, beside N(0, 1).

    python benchmarks/attention_data.py [--kernel PATTERN ...] [--keys 4096] [--class NAME ...]
                                        [--inputs FILE.npz ...] [--page PAGE.md]

with AMDATTN_DEVICE=virtual:gfx950 for the kernels of that architecture. Prints a row for each class
of amdattn/bench/inputs.py and of sinks, model-like first: clk of each kernel beside those of
"normal". Of classes whose heads differ, and of files, a row is the mean of all heads and the
slowest one: of a file --heads of them, spread evenly. --page puts the table in place of the one
that a page has of the architecture, between marks.

With --adversary, for each class of tests/support/adversary/classes.py instead, which are meant to
break the kernels, beside normal numbers of the same sizes and options: tiles that take several
times as long are done again with exact maxima.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import amdattn
from amdattn.bench.inputs import MODEL_LIKE, NORMAL, FileInputs, Inputs, ScoreClass, read_inputs
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
    parser.add_argument("--page", type=Path, metavar="PAGE.md")
    parser.add_argument("--heads", type=int, default=12, help="of a file, at most")
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
    if not kernels:
        parser.error(f"--kernel {' '.join(arguments.kernel)} is none of {arch}")
    if arguments.adversary:
        print(f"| {arch} | {' | '.join(k.name.removeprefix('attn_fwd_') for k in kernels)} |")
        print("|---|" + "--:|" * len(kernels))
        for name in ADVERSARY:
            times = (f"{beside_normal(k.name, name, arguments.keys):.3f}" for k in kernels)
            print(f"| {name} | {' | '.join(times)} |", flush=True)
        return
    files = {path.stem: read_inputs(path, is_tiled=True) for path in arguments.inputs}
    classes: dict[str, Inputs] = {name: CLASSES[name] for name in arguments.names}
    first = {name: one for name, one in classes.items() if one == MODEL_LIKE}
    lines = rows(kernels, arguments.keys, {**first, **files, **classes}, arguments.heads)
    table = []
    for line in lines:
        print(line, flush=True)
        table.append(line)
    if arguments.page:
        replace(arguments.page, arch, "\n".join(table))


def rows(
    kernels: Sequence[Any], keys: int, classes: Mapping[str, Inputs], most: int
) -> Iterator[str]:
    """Lines of a table."""
    arch = amdattn.device_props().arch
    names = [f"`{k.name.removeprefix('attn_fwd_')}`" for k in kernels]
    yield f"| {arch} | {' | '.join(names)} |"
    yield "|---|" + "--:|" * len(names)
    normal = {k.name: lifetime(k, keys, NORMAL.name) for k in kernels}
    for name, inputs in classes.items():
        heads = heads_of(inputs, most)
        many = f": mean of {len(heads)} heads, slowest" * (len(heads) > 1)
        cells = [
            f"{normal[k.name]} clk"
            if name == NORMAL.name
            else cell(k, keys, name, inputs, heads, normal[k.name])
            for k in kernels
        ]
        yield f"| {name}{many} | {' | '.join(cells)} |"


def replace(page: Path, arch: str, table: str) -> None:
    """Put the table between the marks of its architecture; SystemExit if there are none."""
    begin, end = f"<!-- attention_data.py writes this, {arch} -->\n", "<!-- to here -->\n"
    before, mark, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (mark and closed):
        raise SystemExit(f"{page} has no marks for {arch}")
    page.write_text(f"{before}{begin}\n{table}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
