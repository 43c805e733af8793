"""Plans that can be run: operands are checked once, and launches packed if they recur."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from amdattn.arrays.allocation import Memory
from amdattn.arrays.buffers import DeviceArray, allocate, device_named
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.interchange import to_library_of
from amdattn.arrays.views import View
from amdattn.device import runtime
from amdattn.device.runtime import Runtime
from amdattn.dtypes import DType, as_dtype
from amdattn.op import launch, zero_at_rest
from amdattn.op.admission import CheckedPlan
from amdattn.op.cache import keep
from amdattn.op.operands import check_workspace
from amdattn.op.outputs import capture_text, output_view
from amdattn.op.plan import Operand, P, PerRun
from amdattn.op.staging import WORKSPACE, run_on_host, uploaded

_FACTS = attrgetter("facts")
_BYTES = as_dtype("uint8")

Operands = Mapping[str, Operand]
_Missing = tuple[str, tuple[int, ...], tuple[int, ...], DType]
_ON_STREAM = (0,)  # scratch memory of a plan whose workspace belongs to its stream


class _Admitted:
    """Operands that passed every check.

    Attributes
    ----------
    operands : dict of str to Operand
        Operands that the caller gives.
    bound : BoundLaunches or None
        Packed launches on them, if there are no other operands and they were seen before.
    missing : tuple or None
        The results that a run allocates: name, shape, strides and type; None: not known yet.
    """

    __slots__ = ("bound", "missing", "operands")

    def __init__(self, operands: dict[str, Operand]) -> None:
        self.operands = operands
        self.bound: launch.BoundLaunches | None = None
        self.missing: tuple[_Missing, ...] | None = None


class RunnablePlan(CheckedPlan[P]):
    """A plan that can be run any number of times, from any thread, on any stream."""

    _numbers: launch.Numbers = ()  # constant arguments with other values than the launches have

    @functools.cached_property
    def _prepared(self) -> launch.PreparedLaunches:
        return launch.PreparedLaunches(self.launches)

    # Sets of device operands that passed every check, by the facts that the checks depend on.
    @functools.cached_property
    def _checked(self) -> dict[object, _Admitted]:
        return {}

    # Sets whose results are allocated, by the addresses of these: dropped results leave their
    # memory to the next ones, so that sets recur.
    @functools.cached_property
    def _bound(self) -> dict[object, launch.BoundLaunches]:
        return {}

    @functools.cached_property
    def _updated(self) -> tuple[int, ...]:
        """The inputs that a run writes."""
        specs = self.specs()
        roles = [specs[name].role for name in self.input_names]
        return tuple(i for i, role in enumerate(roles) if role == "inout")

    @functools.cached_property
    def _can_be_bound(self) -> bool:
        """Whether a run consists of launches that depend only on the operands."""
        arguments = [value for launch in self.launches for _, value in launch.args]
        return all(region.init == "none" for region in self.workspace.regions) and not any(
            isinstance(value, PerRun) for value in arguments
        )

    # -- workspaces ------------------------------------------------------------------------------

    def new_workspace(self, stream: Any = None, device: object = None) -> DeviceArray:
        """Allocate memory for `run(workspace=...)`, ready for the first run.

        `device` is that of `amdattn.empty`.
        """
        handle = runtime.stream_handle(stream)
        return zero_at_rest.new_workspace(self.workspace.total_bytes, device_named(device), handle)

    def clear_workspace(self, workspace: Any, stream: Any = None) -> None:
        """Set a workspace's counters to 0, ordered on `stream`, before a graph is replayed again.

        It is needed after a replay that was aborted, timed out or faulted if another library
        received the error, or if the workspace is memory of another library. For workspaces of
        `new_workspace`, `amdattn.synchronize` does it when it reports the error, and so does any
        wait of this package for the stream of the capture.
        """
        handle = runtime.stream_handle(stream)
        view = output_view(workspace, WORKSPACE, handle)
        check_workspace(view, self.workspace.total_bytes)
        runtime.get(view.ordinal).clear(view.address, self.workspace.zero_bytes, handle)
        if isinstance(workspace, DeviceArray):
            workspace.memory.stream = handle

    # -- runs ------------------------------------------------------------------------------------

    def execute(
        self,
        kind: Any,
        inputs: tuple[View, ...],
        results: tuple[Any, ...],
        variant: str,
        stream: int,
        workspace: Any = None,
    ) -> tuple[Any, ...]:
        """Run on views of the inputs.

        Parameters
        ----------
        kind : array
            Results that are allocated are of its kind.
        inputs : tuple of View
            In the order of `input_names`.
        results : tuple
            Arrays to write, in the order of `result_names`; None: an array is allocated.
        variant : str
            The variant of `operands`.
        workspace : device array, optional

        Returns
        -------
        tuple
            Results in the order of `result_names`, None for those that the plan lacks.
        """
        # Code that every call runs is written for speed, here and in `_run_again`.
        written: list[DeviceArray] = []
        facts: list[object] = [variant]
        for array in results:
            if array is None:
                facts.append(None)
            elif type(array) is DeviceArray:
                facts.append(array.view_on(stream).facts)
                written.append(array)
            else:
                label = self.result_labels[len(facts) - 1]
                facts.append(output_view(array, label, stream).facts)
                if isinstance(array, DeviceArray):
                    written.append(array)
        if workspace is not None:
            scratch = output_view(workspace, WORKSPACE, stream)
            facts.append(scratch.facts)
            memory = None
            if isinstance(workspace, DeviceArray):
                written.append(workspace)
                memory = workspace.memory
            if self.workspace.regions and not self.workspace.zero_bytes and scratch.on_device:
                device = runtime.get(scratch.ordinal)
                zero_at_rest.overwrite(device, memory, scratch.address, self.workspace.total_bytes)
        facts += map(_FACTS, inputs)
        key = tuple(facts)
        admitted = self._checked.get(key)
        if admitted is not None and admitted.bound is not None:
            launch.submit(admitted.bound, stream)
        else:
            if admitted is None:
                made = self._run(key, inputs, results, workspace, variant, stream)
            else:
                device = runtime.get(inputs[0].ordinal)
                made = self._run_again(admitted, device, stream, workspace, variant)
            if made:
                results = tuple(
                    [
                        to_library_of(kind, made[name]) if array is None and name in made else array
                        for name, array in zip(self.result_names, results, strict=True)
                    ]
                )
        for array in written:
            array.memory.stream = stream
        if self._updated:
            for i in self._updated:
                owner = inputs[i].owner
                if isinstance(owner, Memory):
                    owner.stream = stream
        return results

    def _run(
        self,
        key: object,
        inputs: tuple[View, ...],
        results: tuple[Any, ...],
        workspace: Any,
        variant: str,
        stream: int,
    ) -> Mapping[str, Any]:
        """Run on operands that were not seen before, and return the results."""
        given = dict(zip(self.input_names, inputs, strict=True))
        outputs = {
            name: output_view(array, label, stream)
            for name, label, array in (
                *zip(self.result_names, self.result_labels, results, strict=True),
                (WORKSPACE, WORKSPACE, workspace),
            )
            if array is not None
        }
        device = runtime.get(inputs[0].ordinal)
        admitted = _Admitted(self.admit(given, outputs, variant))
        if not inputs[0].on_device:
            if self._updated:
                label = self.specs(variant)[self.input_names[self._updated[0]]].title
                raise TypeError(f"{label} is written in place: it must be in device memory")
            return self._run_on_host(given, outputs, variant, device, stream)
        made = self._run_on_device(admitted, device, stream, workspace, variant)
        keep(self._checked, key, admitted)
        return made

    def _run_on_device(
        self, admitted: _Admitted, device: Runtime, stream: int, workspace: Any, variant: str
    ) -> dict[str, DeviceArray]:
        """Launch on checked operands; allocate and return the missing ones.

        Scratch memory lives as long as this dictionary. Its next user comes after this run: on the
        same stream, or after a wait for it.
        """
        made = self._allocate(admitted, device, stream, variant)
        operands = self._complete(admitted.operands, made, variant, device, stream, workspace)
        launch.run(self._prepared.on(device), operands, device, stream, self._numbers)
        return _written_on(stream, made)

    def _run_again(
        self, admitted: _Admitted, device: Runtime, stream: int, workspace: Any, variant: str
    ) -> dict[str, DeviceArray]:
        """Run on operands that were seen before, and keep the packed launches if possible."""
        if not self._can_be_bound:
            return self._run_on_device(admitted, device, stream, workspace, variant)
        made = self._allocate(admitted, device, stream, variant)
        key = (admitted, *[array.address for array in made.values()])
        bound = self._bound.get(key)
        if bound is None:
            operands = self._complete(admitted.operands, made, variant, device, stream, workspace)
            bound = launch.bind(self._prepared.on(device), operands, device, self._numbers)
            keep(self._bound, key, bound)
            if not made:
                admitted.bound = bound
        launch.submit(bound, stream)
        return _written_on(stream, made)

    def _allocate(
        self, admitted: _Admitted, device: Runtime, stream: int, variant: str
    ) -> dict[str, DeviceArray]:
        """Allocate the results that are not among the operands, and scratch memory if needed."""
        missing = admitted.missing
        if missing is None:
            missing = admitted.missing = self._missing(admitted.operands, variant)
        if not missing:
            return {}
        if stream and device.is_capturing(stream):
            labels = dict(zip(self.result_names, self.result_labels, strict=True))
            wanted = [labels[name] for name, *_ in missing if name in labels]
            scratch = WORKSPACE not in admitted.operands
            raise ValueError(capture_text(wanted, scratch * self.workspace.total_bytes))
        return {
            name: allocate(shape, strides, dtype, stream, device)
            for name, shape, strides, dtype in missing
            if shape != _ON_STREAM
        }

    def _missing(self, operands: Operands, variant: str) -> tuple[_Missing, ...]:
        """The name, shape, strides and type of results that have to be allocated."""
        missing: list[_Missing] = [
            (spec.name, spec.shape, compact_strides(spec.shape), spec.dtype)
            for spec, _ in self._results(variant)
            if spec.name not in operands
        ]
        layout = self.workspace
        if layout.regions and WORKSPACE not in operands:
            scratch = (layout.total_bytes - layout.scratch_offset,)
            missing.append((WORKSPACE, scratch, (1,), _BYTES))
        return tuple(missing)

    def _complete(
        self,
        operands: Operands,
        made: Mapping[str, DeviceArray],
        variant: str,
        device: Runtime,
        stream: int,
        workspace: Any,
    ) -> Operands:
        """All operands and the regions of the workspace, as launches need to find them."""
        complete = dict(operands)
        for spec, at_zero in self._results(variant):
            if spec.name in made:
                complete[spec.name] = Operand(made[spec.name].address, at_zero.strides)
        layout = self.workspace
        if not layout.regions:
            return complete
        if WORKSPACE in operands:
            base = operands[WORKSPACE].address
            if layout.zero_bytes:
                memory = workspace.memory if isinstance(workspace, DeviceArray) else None
                zero_at_rest.prepare(
                    device, memory, base, layout.total_bytes, layout.zero_bytes, stream
                )
        else:
            base = made[WORKSPACE].address - layout.scratch_offset if WORKSPACE in made else 0
        for region in layout.regions:
            address = base + region.offset
            if region.init == "zero_at_rest" and WORKSPACE not in operands:
                address = zero_at_rest.of_stream(device, stream, region.name, region.nbytes)
            elif region.init == "zero":
                device.clear(address, region.nbytes, stream)
            complete[region.name] = Operand(address, {})
        return complete

    def _run_on_host(
        self,
        inputs: Mapping[str, View],
        outputs: Mapping[str, View],
        variant: str,
        device: Runtime,
        stream: int,
    ) -> dict[str, Any]:
        specs = self.specs(variant)

        def aligned(name: str, view: View) -> bool:
            return not self.misfit_of_copy(specs[name], self.operand(specs[name], view))

        def run(staged: Mapping[str, View]) -> Mapping[str, DeviceArray]:
            operands = {name: self.operand(specs[name], view) for name, view in staged.items()}
            for name, operand in operands.items():  # compact copies included
                if wrong := self.misfit_of_copy(specs[name], operand):
                    raise ValueError(f"{specs[name].title} has {wrong}")
            before = {
                name: uploaded(view, device, stream)
                for name, view in outputs.items()
                if specs[name].partly
            }
            views = {name: array.view_on(stream) for name, array in before.items()}
            operands |= {name: self.operand(specs[name], view) for name, view in views.items()}
            made = self._run_on_device(_Admitted(operands), device, stream, None, variant)
            return {**made, **before}

        return run_on_host(inputs, outputs, aligned, run, device, stream)


def _written_on(stream: int, made: dict[str, DeviceArray]) -> dict[str, DeviceArray]:
    """Return the view, and record that it is written on a stream."""
    for array in made.values():
        array.memory.stream = stream
    return made
