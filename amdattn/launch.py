"""Runs a plan: packs kernel arguments and launches. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping

from amdattn.kernarg import packer
from amdattn.plan import Address, Launch, Operand, Plan, Stride
from amdattn.runtime import Runtime

ABSENT = Operand(0, {})


class PreparedLaunch:
    """A launch with its kernel loaded and the constant arguments in place."""

    def __init__(self, launch: Launch, device: Runtime) -> None:
        self._device = device
        self._function = device.function(launch.kernel)
        self._packer = packer(launch.kernel)
        self._grid = launch.grid
        self._workgroup = launch.kernel.workgroup
        args = dict(launch.args)
        if set(args) != set(self._packer.names):
            differing = sorted(set(args) ^ set(self._packer.names))
            raise ValueError(
                f"plan and struct {launch.kernel.kernarg.struct} differ in {differing}"
            )
        self._values: list[int | float] = []
        self._addresses: list[tuple[int, str]] = []
        self._strides: list[tuple[int, str, str]] = []
        for i, name in enumerate(self._packer.names):
            value = args[name]
            if isinstance(value, Address):
                self._addresses.append((i, value.operand))
            elif isinstance(value, Stride):
                self._strides.append((i, value.operand, value.axis))
            self._values.append(value if isinstance(value, (int, float)) else 0)

    def run(self, operands: Mapping[str, Operand], stream: int) -> None:
        """Launch once on `stream`."""
        values = self._values.copy()
        for i, name in self._addresses:
            values[i] = operands[name].address
        for i, name, axis in self._strides:
            values[i] = operands[name].strides[axis]
        kernargs = self._device.kernarg_buffer(self._packer.size)
        self._packer.pack_into(kernargs.block, 0, *values)
        self._device.launch(self._function, self._grid, self._workgroup, kernargs, stream)


def prepare(plan: Plan, device: Runtime) -> tuple[PreparedLaunch, ...]:
    """Load every kernel of a plan, so that running it only packs and launches."""
    device.enter()
    return tuple(PreparedLaunch(launch, device) for launch in plan.launches)


def run(
    prepared: tuple[PreparedLaunch, ...],
    operands: Mapping[str, Operand],
    device: Runtime,
    stream: int,
) -> None:
    """Run the launches of a plan in order on `stream`."""
    device.enter()
    for launch in prepared:
        launch.run(operands, stream)
