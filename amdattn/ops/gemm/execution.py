"""Plans of matrix products that can be run: checks, counters of arrivals, the launch."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from amdattn.arrays.buffers import DeviceArray, View, allocate, device_named
from amdattn.arrays.dlpack import compact_strides
from amdattn.arrays.interchange import as_view, like
from amdattn.device import runtime
from amdattn.device.manifest import KernelSpec
from amdattn.device.runtime import Runtime
from amdattn.dtypes import as_dtype
from amdattn.errors import UnsupportedDeviceError
from amdattn.op import launch, zero_at_rest
from amdattn.op.cache import keep
from amdattn.op.operands import check_output, check_placement, check_shape, check_workspace
from amdattn.op.outputs import capture_text, output_view
from amdattn.op.plan import Operand, Plan
from amdattn.op.staging import run_on_host
from amdattn.ops.gemm.planning import GRID_XCDS
from amdattn.ops.gemm.problem import ELEMENT_BYTES, MAX_REACH, GemmProblem

_BYTES = as_dtype("uint8")


class GemmPlan(Plan[GemmProblem]):
    """A plan that can be run. Made by `plan_gemm`; see `Plan` for what it holds."""

    @property
    def kernel(self) -> KernelSpec:
        """The member that was chosen."""
        return self.launches[0].kernel

    @property
    def splits(self) -> int:
        """Parts along k."""
        return self.launches[0].grid[0] // GRID_XCDS

    @functools.cached_property
    def _prepared(self) -> launch.PreparedLaunches:
        return launch.PreparedLaunches(self.launches)

    @functools.cached_property
    def _checked(self) -> dict[object, dict[str, Operand]]:
        return {}

    def new_workspace(self, stream: Any = None, device: object = None) -> DeviceArray:
        """Memory for `run(workspace=...)`, 0 as it has to be before the first run.

        On the device that `amdattn.empty` would take with the same `device`.
        """
        handle = runtime.stream_handle(stream)
        return zero_at_rest.new_workspace(self.workspace.total_bytes, device_named(device), handle)

    def clear_workspace(self, workspace: Any, stream: Any = None) -> None:
        """Set a workspace's counters to 0, ordered on `stream`, before a graph is replayed again.

        Needed after a replay that was aborted, timed out or faulted if another library has seen the
        error, or if the workspace is memory of another library. `amdattn.synchronize`, and waits of
        this package for the stream from which it was captured, do it for workspaces of
        `new_workspace` when they report the error.
        """
        handle = runtime.stream_handle(stream)
        view = output_view(workspace, "workspace", handle)
        check_workspace(view, self.workspace.total_bytes)
        runtime.get(view.ordinal).clear(view.address, self._zero_bytes, handle)

    @property
    def _zero_bytes(self) -> int:
        """Of the begin of a workspace: counters, and the sums that parts are added to."""
        if not self.workspace.regions or not self.problem.deterministic:
            return self.workspace.total_bytes
        return self.workspace["counters"].nbytes

    def run(
        self,
        a: Any,
        b: Any,
        out: Any = None,
        bias: Any = None,
        *,
        workspace: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shapes; parameters and result as `gemm_nt`.

        Parameters
        ----------
        workspace : device array, optional
            Of `new_workspace`, or compact, of at least ``plan.workspace.total_bytes`` bytes, with
            counters of 0, and partial sums of 0 if the plan is not deterministic. A run leaves them
            0. After one that was aborted or faulted the next run sets them right, for graphs the
            wait that reports the failure: see `clear_workspace` for what they need besides. Runs at
            the same time need workspaces of their own. While a graph is captured it must be given
            if the plan has one; plans of other counters then cannot use it.
        """
        handle = runtime.stream_handle(stream)
        inputs = {"a": as_view(a, "a", handle), "b": as_view(b, "b", handle)}
        if bias is not None:
            inputs["bias"] = as_view(bias, "bias", handle)
        return self.run_on_views(a, inputs, out, workspace, handle)

    def run_on_views(
        self, kind: Any, inputs: Mapping[str, View], out: Any, workspace: Any, stream: int
    ) -> Any:
        """As `run`, with the inputs seen as views already; the result is of the kind of `kind`."""
        outputs: dict[str, View] = {}
        if out is not None:
            outputs["out"] = output_view(out, "out", stream)
        if workspace is not None:
            outputs["workspace"] = output_view(workspace, "workspace", stream)
        on_device, device = inputs["a"].on_device, runtime.get(inputs["a"].ordinal)
        given = {**inputs, **outputs}
        key = tuple([(name, view.facts) for name, view in given.items()])
        operands = self._checked.get(key)
        if operands is None:
            operands = self._admit(inputs, outputs, device)
            if on_device:
                keep(self._checked, key, operands)
        if on_device:
            made: Any = self._run_on_device(operands, device, stream, workspace)
        else:
            made = self._run_on_host(inputs, outputs, device, stream)
        if out is None:
            out = like(kind, made)
        for array in (out, workspace):
            if isinstance(array, DeviceArray):
                array.stream = stream
        return out

    # -- checks ----------------------------------------------------------------------------------

    def _shape(self, name: str) -> tuple[tuple[int, ...], str]:
        p = self.problem
        return ((p.m, p.n), p.out_dtype) if name == "out" else (p.input_shapes[name], p.dtype)

    def _admit(
        self, inputs: Mapping[str, View], outputs: Mapping[str, View], device: Runtime
    ) -> dict[str, Operand]:
        if device.props.arch != self.props.arch:
            raise UnsupportedDeviceError(
                f"this plan is for {self.props.arch}, but {device.props.name} "
                f"({device.props.arch}) is bound"
            )
        if ("bias" in inputs) != self.problem.bias:
            raise ValueError(
                f"bias was {'given' if 'bias' in inputs else 'not given'}, but the plan has "
                f"bias={self.problem.bias}"
            )
        check_placement({**inputs, **outputs})
        operands: dict[str, Operand] = {}
        taken: dict[str, View] = {}
        for name, view in {**inputs, **outputs}.items():
            if name == "workspace":
                check_workspace(view, self.workspace.total_bytes)
                if not view.on_device:
                    raise TypeError("workspace must be in device memory")
            else:
                check_shape(view, name, *self._shape(name), "m, n, k of the plan")
            if name in outputs:
                check_output(name, view, taken)
            taken[name] = view
            operands[name] = _operand(view)
        if inputs["a"].on_device:
            for name in ("a", "b"):
                wrong = misalignment(operands[name], self.kernel)
                if name == "b" and not wrong:
                    wrong = self._beyond_reach(operands[name])
                if wrong:
                    raise ValueError(
                        f"{name} has {wrong} for kernel {self.kernel.name}; plan with aligned=False"
                    )
        return operands

    def _beyond_reach(self, b: Operand) -> str:
        stride = b.strides["row"]
        any_distance = self.kernel.accepts["pointer_align_bytes"] == ELEMENT_BYTES
        if any_distance or self.problem.reaches_factors(stride):
            return ""
        return f"row stride {stride}, which puts factors {MAX_REACH} bytes or more from their rows"

    # -- runs ------------------------------------------------------------------------------------

    def _run_on_device(
        self, operands: Mapping[str, Operand], device: Runtime, stream: int, workspace: Any = None
    ) -> DeviceArray | None:
        complete = dict(operands)
        made = None
        if "out" not in complete:
            if stream and device.is_capturing(stream):
                raise ValueError(capture_text(["out"], 0))
            shape, dtype = self._shape("out")
            made = allocate(shape, compact_strides(shape), as_dtype(dtype), stream, device)
            made.stream = stream
            complete["out"] = _operand(made.view())
        scratch = self._add_workspace(complete, device, stream, workspace)
        launch.run(self._prepared.on(device), complete, device, stream)
        del scratch  # its next user comes after this run: on the same stream, or when it is done
        return made

    def _add_workspace(
        self, operands: dict[str, Operand], device: Runtime, stream: int, workspace: Any
    ) -> DeviceArray | None:
        if not self.workspace.regions:
            return None
        if "workspace" in operands:
            base = operands["workspace"].address
            memory = workspace.memory if isinstance(workspace, DeviceArray) else None
            total = self.workspace.total_bytes
            zero_at_rest.prepare(device, memory, base, total, self._zero_bytes, stream)
            for region in self.workspace.regions:
                operands[region.name] = Operand(base + region.offset, {})
            return None
        if stream and device.is_capturing(stream):
            raise ValueError(
                "a graph is being captured from the stream: replays need a workspace of "
                f"{self.workspace.total_bytes} bytes that lasts as long as the graph, so pass "
                "workspace=plan.new_workspace()"
            )
        tiles = self.workspace["counters"].nbytes // zero_at_rest.COUNTER_BYTES
        if not self.problem.deterministic:
            sums = self.workspace["partials"].nbytes // tiles
            counters, partials = zero_at_rest.of_stream(device, stream, tiles, sums)
            operands["counters"], operands["partials"] = (
                Operand(counters, {}),
                Operand(partials, {}),
            )
            return None
        operands["counters"] = Operand(zero_at_rest.of_stream(device, stream, tiles, 0)[0], {})
        parts = allocate((self.workspace["partials"].nbytes,), (1,), _BYTES, stream, device)
        operands["partials"] = Operand(parts.address, {})
        return parts

    def _run_on_host(
        self,
        inputs: Mapping[str, View],
        outputs: Mapping[str, View],
        device: Runtime,
        stream: int,
    ) -> Any:
        def aligned(view: View) -> bool:
            return len(view.shape) == 1 or not misalignment(_operand(view), self.kernel)

        def run(staged: Mapping[str, View]) -> Mapping[str, DeviceArray]:
            operands = {name: _operand(view) for name, view in staged.items()}
            made = self._run_on_device(operands, device, stream)
            assert made is not None
            return {"out": made}

        return run_on_host(inputs, outputs, aligned, run, device, stream)["out"]


def _operand(view: View) -> Operand:
    rows = len(view.shape) > 1 and view.shape[0] > 1
    return Operand(view.address, {"row": view.strides[0] if rows else 0})


def misalignment(operand: Operand, kernel: KernelSpec) -> str:
    """What in the address or row stride of a, b or bias the kernel cannot take, or ""."""
    align = kernel.accepts["pointer_align_bytes"]
    if operand.address % align:
        return f"address {operand.address:#x}, which must be a multiple of {align} bytes"
    stride = operand.strides["row"]
    multiple, (least, most) = kernel.accepts["stride_multiple"], kernel.accepts["row_stride"]
    if stride % multiple or not least <= stride <= most:
        allowed = f"a multiple of {multiple} in {least}..{most} elements"
        return f"row stride {stride}, which must be {allowed}"
    return ""
