"""The package's own attention kernels as a benchmark runs them."""

from __future__ import annotations

import numpy as np

from amdattn import manifest, plan as plans, runtime
from amdattn.attention import plan_attention
from amdattn.bench.kernels import Launch, Operands, Walk, grid_indices, kv_rows_of_tiles
from amdattn.bench.shapes import Shape
from amdattn.errors import UnsupportedDeviceError, UnsupportedProblem
from amdattn.kernarg import packer
from amdattn.plan import Address, Stride
from amdattn.plan.attention import GRID_RULE


class Shipped:
    """The kernel that a plan chooses."""

    peer = "amdattn"
    causal_granule = 256

    def __init__(self, round_mode: str) -> None:
        self.round_mode = round_mode

    def _plan(self, shape: Shape) -> plans.Launch:
        plan = plan_attention(
            shape.batch,
            shape.seqlen_q,
            shape.seqlen_kv,
            shape.heads_q,
            shape.heads_kv,
            shape.head_dim,
            device=runtime.device_props(),
            causal=shape.causal,
            round_mode=self.round_mode,
        )
        if len(plan.launches) != 1:
            raise NotImplementedError(
                f"{shape}: a plan of {len(plan.launches)} launches cannot be modelled yet"
            )
        return plan.launches[0]

    def refusal(self, shape: Shape) -> str:
        """What the planner says against it."""
        try:
            self._plan(shape)
        except (UnsupportedProblem, UnsupportedDeviceError) as error:
            return str(error)
        return ""

    def launch(self, shape: Shape, operands: Operands) -> Launch:
        """As the operation itself would make it, without a log-sum-exp."""
        planned = self._plan(shape)
        arguments = dict(planned.args)
        pack = packer(planned.kernel)
        values: list[int | float] = []
        for name in pack.names:
            value = arguments[name]
            if isinstance(value, Address):
                value = 0 if value.operand == "lse" else operands.addresses[value.operand]
            elif isinstance(value, Stride):
                value = operands.strides(value.operand)[value.axis]
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

    def walk(self, shape: Shape) -> Walk:
        """By the one grid rule of the planner."""
        planned = self._plan(shape)
        kernel = planned.kernel
        if kernel.grid != GRID_RULE:
            raise NotImplementedError(f"kernel {kernel.name} has grid {kernel.grid!r}")
        _, tiles, batch = grid_indices(planned.grid)
        rows = kv_rows_of_tiles(shape, kernel.q_tile, kernel.kv_tile, tiles)
        return Walk(rows, batch, np.minimum((tiles + 1) * kernel.q_tile, shape.seqlen_q))


_images: dict[manifest.KernelSpec, bytes] = {}


def _image(kernel: manifest.KernelSpec) -> bytes:
    if kernel not in _images:
        _images[kernel] = kernel.read_code_object()
    return _images[kernel]
