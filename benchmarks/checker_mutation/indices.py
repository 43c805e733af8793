"""Launches of the kernel that narrows indices, which calls launch before their plans run."""

from __future__ import annotations

import numpy as np

from amdattn.device.kernarg import packer
from amdattn.device.manifest import KernelSpec
from benchmarks.checker_mutation.subject import Case, Subject, read_only, unwritten

_FAR = 2**40  # beyond 32 bits
_INT32 = np.iinfo(np.int32)
# How many, in steps of how many elements, to at least and at most what.
_CASES = (
    (1, 1, 0, 12),
    (256, 1, int(_INT32.min), int(_INT32.max)),
    (1001, 1, -1, 1000),
    (300, 3, -7, 50),
)


def index_subject(kernel: KernelSpec) -> Subject:
    """The kernel, of counts around its lanes, on indices of which many are out of range."""
    made = tuple(_case(kernel, *sizes) for sizes in _CASES)
    return Subject(kernel.name, kernel.read_code_object(), kernel.symbol, made)


def _case(kernel: KernelSpec, count: int, step: int, least: int, most: int) -> Case:
    rng = np.random.default_rng(count)
    held = (count - 1) * step + 1
    near = rng.integers(2 * least, 2 * most + 1, held)
    given = np.where(rng.random(held) < 0.5, near, rng.integers(-_FAR, _FAR, held))
    given[0] = least - 1
    args = {"from": 0, "to": 0, "count": count, "step": step, "least": least, "most": most}
    layout = packer(kernel)
    block = bytearray(layout.size)
    layout.pack_into(block, 0, *(args[name] for name in layout.names))
    offsets = {name: offset for name, offset, *_ in kernel.kernarg.fields}
    return Case(
        f"{count} indices, every {step}. one, to {least}..{most}",
        (-(-count // kernel.workgroup[0]), 1, 1),
        kernel.workgroup,
        bytes(block),
        ((offsets["from"], 0), (offsets["to"], 1)),
        (read_only("from", given.tobytes()), unwritten("to", 4 * count)),
    )
