"""Launches of the package's own attention kernels, as its plans have them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from amdattn.bench.items import Items
from amdattn.bench.kernels import Launch, Operands, Walk
from amdattn.bench.shapes import Shape
from amdattn.device import manifest, runtime
from amdattn.device.kernarg import packer
from amdattn.errors import UnsupportedDeviceError, UnsupportedProblem
from amdattn.op import plan as plans
from amdattn.op.launch import runs
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, PerRun, Stride
from amdattn.ops.attention import select
from amdattn.ops.attention.planning import PlannedAttention, plan_attention
from amdattn.ops.attention.work import WorkMap

if TYPE_CHECKING:
    from typing_extensions import Self


class ShippedLaunches:
    """The kernels that planning chooses.

    Parameters
    ----------
    round_mode : str
        Rounding of the probabilities.
    num_splits : int
        As in the operation; 0: the planner's choice.
    q_tile : int
        Use only kernels whose tiles have this many rows; 0: the planner's choice.
    merges : bool
        Whether the last part of a tile may merge all parts; if it may, the planner chooses.
    """

    peer = "amdattn"

    def __init__(
        self, round_mode: str, num_splits: int = 0, q_tile: int = 0, merges: bool = True
    ) -> None:
        self.round_mode, self._num_splits, self._q_tile = round_mode, num_splits, q_tile
        self._merges = merges

    def split(self, num_splits: int, q_tile: int = 0) -> Self:
        """The same kernels with every tile in `num_splits` parts; 1: undivided."""
        return type(self)(self.round_mode, num_splits, q_tile, self._merges)

    def merging_apart(self) -> Self:
        """The same kernels in plans that merge parts in a separate launch."""
        return type(self)(self.round_mode, self._num_splits, self._q_tile, merges=False)

    def _plan(self, shape: Shape) -> PlannedAttention:
        problem = dataclasses.replace(shape.problem(self.round_mode), num_splits=self._num_splits)
        rows = [
            row
            for row in manifest.kernels()
            if row.op != select.ATTENTION or self._q_tile in (0, row.tile["q"])
        ]
        if not self._merges:
            rows = [
                select.merging_apart(row) if row.op == select.ATTENTION else row for row in rows
            ]
        return plan_attention(problem, runtime.device_props(), rows)

    def refusal(self, shape: Shape) -> str:
        """The planner's reason against the shape; "" if there is none."""
        try:
            self._plan(shape)
        except (UnsupportedProblem, UnsupportedDeviceError) as error:
            return str(error)
        return ""

    def launch(self, shape: Shape, operands: Operands) -> Launch:
        """The first launch; in a plan with parts a second one may merge them."""
        return self.launches(shape, operands)[0]

    def launches(self, shape: Shape, operands: Operands) -> list[Launch]:
        """The launches that the operation itself would make, without a log-sum-exp."""
        plan = self._plan(shape)
        regions = {region.name: region.offset for region in plan.workspace.regions}
        if plan.workspace.zero_bytes:
            begin = operands.workspace(plan.workspace.total_bytes)
            runtime.get().clear(begin, plan.workspace.zero_bytes, 0)

        def address(name: str) -> int:
            if name in regions:
                return operands.workspace(plan.workspace.total_bytes) + regions[name]
            return operands.addresses[name]

        return [_packed(planned, operands, address) for planned in plan.launches]

    def work(self, shape: Shape) -> WorkMap:
        """The work items of the first launch."""
        plan = self._plan(shape)
        return WorkMap.of(plan.problem, plan.forward)

    def merges_parts(self, shape: Shape) -> bool:
        """Whether parts along KV are merged in the launch that computes them."""
        return self._plan(shape).workspace.zero_bytes > 0

    def residents(self, shape: Shape) -> int:
        """Workgroups that a CU holds."""
        return workgroups_per_cu(self._plan(shape).forward.kernel, runtime.device_props())[0]

    def items(self, shape: Shape) -> Items:
        """The work of each workgroup of the first launch."""
        return Items.of(self.work(shape))

    def walk(self, shape: Shape) -> Walk:
        """What each workgroup of the first launch reads."""
        return self.items(shape).walk


def _packed(planned: plans.Launch, operands: Operands, address: Callable[[str], int]) -> Launch:
    arguments = dict(planned.args)
    pack = packer(planned.kernel)
    values: list[int | float] = []
    for name in pack.names:
        value = arguments[name]
        if isinstance(value, Address):
            value = address(value.operand)
        elif isinstance(value, Stride):
            value = operands.strides(value.operand)[value.axis]
        elif isinstance(value, PerRun):
            value = next(runs)
        values.append(value)
    block = bytearray(pack.size)
    pack.pack_into(block, 0, *values)
    return Launch(
        _image(planned.kernel),
        planned.kernel.symbol,
        planned.grid,
        planned.kernel.workgroup,
        bytes(block),
    )


_images: dict[manifest.KernelSpec, bytes] = {}


def _image(kernel: manifest.KernelSpec) -> bytes:
    if kernel not in _images:
        _images[kernel] = kernel.read_code_object()
    return _images[kernel]
