"""Runs a plan: packs kernel arguments and launches. It decides nothing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from amdattn.device.kernarg import KernargBuffer, packer
from amdattn.device.runtime import Runtime
from amdattn.op.plan import Address, Launch, Operand, PerRun, Stride

ABSENT = Operand(0, {})
# The arguments of Runtime.submit besides the stream.
BoundLaunch = tuple[tuple[Any, ...], KernargBuffer]
BoundLaunches = tuple[Runtime, tuple[BoundLaunch, ...]]

Numbers = tuple[tuple[str, int], ...]
runs = itertools.count(1)  # the value of PerRun


class PreparedLaunch:
    """A launch with its kernel loaded and the constant arguments in place."""

    def __init__(self, launch: Launch, device: Runtime) -> None:
        self._device = device
        lds_bytes = 0  # beyond the memory that the kernel declares
        self._configuration = (
            device.function(launch.kernel),
            *launch.grid,
            *launch.kernel.workgroup,
            lds_bytes,
        )
        self._offsets = device.argument_offsets(launch.kernel)
        self._packer = packer(launch.kernel)
        args = dict(launch.args)
        if set(args) != set(self._packer.names):
            differing = sorted(set(args) ^ set(self._packer.names))
            raise ValueError(
                f"plan and struct {launch.kernel.kernarg.struct} differ in {differing}"
            )
        self._values: list[int | float] = []
        self._addresses: list[tuple[int, str]] = []
        self._strides: list[tuple[int, str, str]] = []
        self._per_run: list[int] = []
        for i, name in enumerate(self._packer.names):
            value = args[name]
            if isinstance(value, Address):
                self._addresses.append((i, value.operand))
            elif isinstance(value, Stride):
                self._strides.append((i, value.operand, value.axis))
            elif isinstance(value, PerRun):
                self._per_run.append(i)
            self._values.append(value if isinstance(value, (int, float)) else 0)

    def bind(self, operands: Mapping[str, Operand], numbers: Numbers = ()) -> BoundLaunch:
        """Pack a launch on these operands, with kernel arguments of its own.

        `numbers` are constant arguments with other values than in the plan.

        Raises
        ------
        ValueError
            An argument differs from run to run.
        """
        if self._per_run:
            names = [self._packer.names[i] for i in self._per_run]
            raise ValueError(f"{names} differ from run to run: such a launch is not bound")
        kernargs = self._device.new_kernarg_buffer(self._packer.size, self._offsets)
        return self._pack(operands, numbers, kernargs)

    def run(self, operands: Mapping[str, Operand], stream: int, numbers: Numbers = ()) -> None:
        """Launch once on `stream` of the current device."""
        kernargs = self._device.kernarg_buffer(self._packer.size, self._offsets)
        self._device.submit(*self._pack(operands, numbers, kernargs), stream)

    def _pack(
        self, operands: Mapping[str, Operand], numbers: Numbers, kernargs: KernargBuffer
    ) -> BoundLaunch:
        values = self._values.copy()
        for name, value in numbers:
            if name in self._packer.names:
                values[self._packer.names.index(name)] = value
        for i, name in self._addresses:
            values[i] = operands[name].address
        for i, name, axis in self._strides:
            values[i] = operands[name].strides[axis]
        for i in self._per_run:
            values[i] = next(runs)
        self._packer.pack_into(kernargs.block, 0, *values)
        return self._configuration, kernargs


class PreparedLaunches:
    """A plan's launches with all kernels loaded, so that a run only packs and launches."""

    def __init__(self, launches: tuple[Launch, ...]) -> None:
        self._launches = launches
        self._by_ordinal: dict[int, tuple[PreparedLaunch, ...]] = {}

    def on(self, device: Runtime) -> tuple[PreparedLaunch, ...]:
        """The launches for a device, which has its own modules."""
        found = self._by_ordinal.get(device.ordinal)
        if found is None:
            found = tuple(PreparedLaunch(launch, device) for launch in self._launches)
            self._by_ordinal[device.ordinal] = found
        return found


def run(
    prepared: tuple[PreparedLaunch, ...],
    operands: Mapping[str, Operand],
    device: Runtime,
    stream: int,
    numbers: Numbers = (),
) -> None:
    """Run the launches of a plan in order on `stream`; `numbers` as in `PreparedLaunch.bind`."""
    with device.current(stream):
        for launch in prepared:
            launch.run(operands, stream, numbers)


def bind(
    prepared: tuple[PreparedLaunch, ...],
    operands: Mapping[str, Operand],
    device: Runtime,
    numbers: Numbers = (),
) -> BoundLaunches:
    """Pack the arguments of every launch, for any number of submissions."""
    return device, tuple(launch.bind(operands, numbers) for launch in prepared)


def submit(bound: BoundLaunches, stream: int) -> None:
    """Run bound launches in order on `stream`.

    Any number of threads may submit the same launches at once: their arguments never change.
    """
    device, launches = bound
    if device.num_devices == 1:  # it is current: this is most of what a call costs
        for configuration, kernargs in launches:
            device.submit(configuration, kernargs, stream)
    else:
        with device.current(stream):
            for configuration, kernargs in launches:
                device.submit(configuration, kernargs, stream)
