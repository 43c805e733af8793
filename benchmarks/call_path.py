"""Prints the way of one call through the package: files, changes of file, functions.

    python -m benchmarks.call_path [--every-call]

A warm `amdattn.flash_attn_func` of arrays on the device, whose result gets the memory of one that
was dropped, as on a GPU. The virtual device gives every array memory of its own instead, so that
launches are packed anew each time: --every-call shows that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

import amdattn
from amdattn.arrays import memory

_PACKAGE = str(Path(amdattn.__file__).parent) + "/"
_WARM_CALLS = 3


class Step(NamedTuple):
    """A call of a function of the package."""

    depth: int
    file: str
    function: str


class Way(NamedTuple):
    """What one call goes through."""

    steps: list[Step]
    changes: int

    @property
    def files(self) -> set[str]:
        """Those that it goes through."""
        return {step.file for step in self.steps}


def path_of(call: Callable[[], object]) -> Way:
    """Follow one call, by `sys.setprofile`."""
    steps: list[Step] = []
    stack: list[str] = []
    changes = 0
    here = ""

    def follow(frame: FrameType, event: str, _: Any) -> None:
        nonlocal changes, here
        file = frame.f_code.co_filename
        if event not in ("call", "return") or not file.startswith(_PACKAGE):
            return
        if event == "call":
            steps.append(Step(len(stack), file.removeprefix(_PACKAGE), frame.f_code.co_name))
            stack.append(file)
        elif stack:
            stack.pop()
        now = stack[-1] if stack else ""
        changes += bool(now) and now != here
        here = now or here

    sys.setprofile(follow)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Way(steps, changes)


def attention() -> Callable[[], object]:
    """A call that was made before."""
    rng = np.random.default_rng(0)
    shapes = (1, 256, 8, 128), (1, 256, 2, 128), (1, 256, 2, 128)
    q, k, v = (amdattn.asarray(rng.standard_normal(shape), dtype="bfloat16") for shape in shapes)

    def call() -> object:
        return amdattn.flash_attn_func(q, k, v)

    for _ in range(_WARM_CALLS):
        call()
    return call


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every-call", action="store_true", help="without the cache of memory")
    options = parser.parse_args()
    with memory.caching(not options.every_call):
        found = path_of(attention())
    for step in found.steps:
        print(f"{'  ' * step.depth}{step.file}: {step.function}")
    print(f"{len(found.steps)} calls in {len(found.files)} files, {found.changes} changes of file")


if __name__ == "__main__":
    main()
