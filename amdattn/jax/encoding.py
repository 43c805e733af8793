"""Encodes plans as words for XLA, in the format of native/plan.h; they contain no addresses."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.views import View
from amdattn.device.kernarg import packer
from amdattn.device.manifest import KernelSpec
from amdattn.errors import UnsupportedProblem
from amdattn.op.executor import RunnablePlan
from amdattn.op.plan import Address, Launch, Operand, PerRun, Stride
from amdattn.op.spec import OperandSpec, Specs

_MAGIC = int.from_bytes(b"amapln01", "little")
_GENERATION = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and results of a call, in XLA's order.

    Attributes
    ----------
    inputs : tuple of OperandSpec
        Including operands that are written in place.
    results : tuple of OperandSpec
        Operands that are written in place come last.
    aliases : tuple of (int, int)
        Pairs of an input and the result that has its memory.
    """

    inputs: tuple[OperandSpec, ...]
    results: tuple[OperandSpec, ...]
    aliases: tuple[tuple[int, int], ...]

    @staticmethod
    def of(specs: Specs) -> Signature:
        """The signature of a call with these operands."""
        there = [spec for spec in specs.values() if spec.present]
        inputs = tuple(spec for spec in there if spec.role != "out")
        made = tuple(spec for spec in there if spec.role == "out")
        updated = [(i, spec) for i, spec in enumerate(inputs) if spec.role == "inout"]
        aliases = tuple((i, len(made) + j) for j, (i, _) in enumerate(updated))
        return Signature(inputs, (*made, *(spec for _, spec in updated)), aliases)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPlan:
    """A plan as words, and the workspace that XLA must allocate in addition to its results."""

    signature: Signature
    words: NDArray[np.int64]
    workspace_bytes: int


def encode(plan: RunnablePlan[Any], variant: str) -> EncodedPlan:
    """Encode a plan for compact operands.

    Raises
    ------
    UnsupportedProblem
        Kernels of the plan do not accept compact operands.
    """
    specs = plan.specs(variant)
    signature = Signature.of(specs)
    operands = {spec.name: _compact(plan, spec) for spec in specs.values() if spec.present}
    # Places of the operands that launches name: (buffer, offset).
    places = {spec.name: (i, 0) for i, spec in enumerate(signature.inputs)}
    first = len(signature.inputs)
    for i, spec in enumerate(signature.results):
        if spec.role == "out":
            places[spec.name] = first + i, 0
    layout = plan.workspace
    workspace = first + len(signature.results)
    places |= {region.name: (workspace, region.offset) for region in layout.regions}
    # XLA gives different memory every time, so regions that must be zero are cleared every time.
    clears = [
        (workspace, region.offset, region.nbytes)
        for region in layout.regions
        if region.init != "none" and region.nbytes
    ]
    sizes = [spec.nbytes for spec in (*signature.inputs, *signature.results)]
    num_results = len(signature.results)
    if layout.total_bytes:
        sizes.append(layout.total_bytes)
        num_results += 1
    words = [*sizes, *(word for clear in clears for word in clear)]
    for launch in plan.launches:
        words += _of_launch(launch, operands, places)
    head = [_MAGIC, 6 + len(words), first, num_results, len(clears), len(plan.launches)]
    return EncodedPlan(signature, np.array([*head, *words], np.int64), layout.total_bytes)


def _compact(plan: RunnablePlan[Any], spec: OperandSpec) -> Operand:
    view = View(0, spec.shape, compact_strides(spec.shape), spec.dtype, False, None, ordinal=0)
    operand = plan.operand(spec, view)
    if wrong := plan.misfit(spec, operand):
        raise UnsupportedProblem(f"{spec.title} has {wrong}")
    return operand


def _of_launch(
    launch: Launch, operands: dict[str, Operand], places: dict[str, tuple[int, int]]
) -> list[int]:
    kernel = launch.kernel
    layout = packer(kernel)
    args = dict(launch.args)
    values: list[int | float] = []
    patches: list[tuple[int, int]] = []
    for name, offset, *_ in sorted(kernel.kernarg.fields, key=lambda field: field[1]):
        value = args[name]
        if isinstance(value, Address):
            buffer, addend = places[value.operand]
            patches.append((offset | buffer << 32, addend))
        elif isinstance(value, PerRun):
            patches.append((_signed(offset | _GENERATION << 32), 0))
        elif isinstance(value, Stride):
            values.append(operands[value.operand].strides[value.axis])
            continue
        else:
            values.append(value)
            continue
        values.append(0)
    block = bytearray(-(-layout.size // 8) * 8)
    layout.pack_into(block, 0, *values)
    return [
        *_words(key_of(kernel)),
        *launch.grid,
        *kernel.workgroup,
        layout.size,
        len(patches),
        *(word for patch in patches for word in patch),
        *_words(bytes(block)),
    ]


def _words(data: bytes) -> list[int]:
    return [int(word) for word in np.frombuffer(data, np.int64)]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


@functools.cache
def key_of(kernel: KernelSpec) -> bytes:
    """16 bytes that name a kernel in every process, from its code object and its symbol."""
    return hashlib.sha256(f"{kernel.sha256} {kernel.symbol}".encode()).digest()[:16]
