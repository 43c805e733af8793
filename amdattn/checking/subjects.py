"""Subjects of `amdattn check`: operations of the package, and kernels of code object files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amdattn.arrays.buffers import DeviceArray, empty, host_empty
from amdattn.arrays.interchange import asarray
from amdattn.checking.arguments import Argument, Buffer, place
from amdattn.checking.session import Check
from amdattn.device import manifest, runtime
from amdattn.device.code_object import KernelInfo, read_kernels
from amdattn.dtypes import as_dtype
from amdattn.errors import ManifestError
from amdattn.op.executor import RunnablePlan
from amdattn.op.indices import NARROW
from amdattn.op.operation import Case, Operation
from amdattn.ops.registry import operations

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class OfOperation:
    """A case of an operation, on random inputs."""

    operation: Operation[Any, Any]
    case: Case[Any]
    seed: int = 0

    @property
    def title(self) -> str:
        """One line for people."""
        return f"{self.operation.name} {self.case.title}"

    def plan(self) -> RunnablePlan[Any]:
        """The plan on the bound device; raises UnsupportedProblem if no kernel does it."""
        return self.operation.plan_case(self.case, runtime.device_props(), manifest.kernels())

    def run(self, check: Check) -> Outputs:
        """Launch once; inputs must not be written, and memory that is 0 at rest must end as 0."""
        plan = self.plan()
        variant = self.case.variant or plan.default_variant
        specs = plan.specs(variant)
        inputs = {name: asarray(data) for name, data in self.case.inputs(self.seed).items()}
        titled = {name: specs[name].title for name in inputs}
        check.declare(
            read_only={titled[name]: x for name, x in inputs.items() if specs[name].role == "in"},
            others={titled[name]: x for name, x in inputs.items() if specs[name].role != "in"},
        )
        results = {
            spec.name: empty(spec.shape, spec.dtype.name)
            for spec in specs.values()
            if spec.role == "out" and spec.present
        }
        outputs = {specs[name].title: array for name, array in results.items()}
        check.declare(others=outputs)
        workspace = None
        if plan.workspace.zero_bytes:
            workspace = plan.new_workspace()
            check.declare(
                zero_at_end={
                    region.name: workspace[region.offset : region.offset + region.nbytes]
                    for region in plan.workspace.regions
                    if region.init == "zero_at_rest"
                }
            )
        views, stream = plan.views_of(inputs, None)
        given = tuple(results.get(name) for name in plan.result_names)
        plan.execute(None, views, given, variant, stream, workspace)
        written = {titled[name]: x for name, x in inputs.items() if specs[name].role != "in"}
        return {name: array.numpy() for name, array in {**written, **outputs}.items()}


def every_case(seed: int, name: str = "") -> list[OfOperation]:
    """Every operation and every kernel shipped for the bound device, at sizes that fit no tile.

    It leaves out the kernel of indices, which runs before plans do: `index_subject.OfIndices`.

    Parameters
    ----------
    name : str
        Only this operation.

    Raises
    ------
    ManifestError
        An operation has no kernel for the device, or one that none of the cases reaches.
    """
    props = runtime.device_props()
    rows = [row for row in manifest.kernels() if row.arch == props.arch]
    subjects = []
    for operation in operations():
        if name not in ("", operation.name):
            continue
        own = [row for row in rows if row.op == operation.kernel_ops[0]]
        if not own:
            raise ManifestError(f"no kernel of {operation.name} is shipped for {props.arch}")
        for row in (None, *own):
            subjects += [OfOperation(operation, case, seed) for case in operation.cases(row)]
    reached = {launch.kernel for subject in subjects for launch in subject.plan().launches}
    missed = [row.name for row in rows if row not in reached and row.op != NARROW]
    if missed and not name:
        raise ManifestError(f"no case of `amdattn check all` reaches kernel {', '.join(missed)}")
    return subjects


class CodeObject:
    """A kernel of a code object file.

    Parameters
    ----------
    path : Path
        ELF code object for the bound device.
    kernel : str or None
        None: the only one in it.
    grid : tuple of int
        Workgroups along x, y and z.
    workgroup : tuple of int or None
        Lanes along x, y and z; None: the size that the kernel was compiled for.
    arguments : sequence of Argument
    dynamic_lds_bytes : int
    seed : int
        Varies random contents of buffers.

    Raises
    ------
    ValueError
        The file is not a code object, lacks the kernel, or the arguments are not the kernel's.
    """

    def __init__(
        self,
        path: Path,
        kernel: str | None,
        grid: tuple[int, int, int],
        workgroup: tuple[int, int, int] | None,
        arguments: tuple[Argument, ...],
        dynamic_lds_bytes: int = 0,
        seed: int = 0,
    ) -> None:
        self.path = path
        self.image = path.read_bytes()
        self.kernel = _choose(read_kernels(self.image, str(path)), kernel, path)
        self.workgroup = _workgroup(self.kernel, workgroup)
        self.grid = grid
        self.placed = place(arguments, self.kernel)
        self.dynamic_lds_bytes = dynamic_lds_bytes
        self.seed = seed
        self._function: Any = None
        for buffer in self._buffers():
            if buffer.fill == "file":
                buffer.contents(seed)  # a wrong file is an error before anything is launched

    @property
    def title(self) -> str:
        """One line for people."""
        return f"{self.path.name} {self.kernel.name} grid {self.grid} workgroup {self.workgroup}"

    def _buffers(self) -> list[Buffer]:
        return [argument for _, argument in self.placed if isinstance(argument, Buffer)]

    def arrays(self) -> dict[str, DeviceArray]:
        """Fresh buffers by name, with their contents."""
        return {
            buffer.name: (
                empty(buffer.shape, buffer.dtype)
                if buffer.role == "out"
                else asarray(buffer.contents(self.seed))
            )
            for buffer in self._buffers()
        }

    def kernarg(self, arrays: Mapping[str, DeviceArray]) -> bytes:
        """The explicit arguments, packed."""
        block = bytearray(self.kernel.explicit_bytes)
        for offset, argument in self.placed:
            packed = (
                arrays[argument.name].address.to_bytes(8, "little")
                if isinstance(argument, Buffer)
                else argument.packed()
            )
            block[offset : offset + len(packed)] = packed
        return bytes(block)

    def run(self, check: Check) -> Outputs:
        """Launch once on fresh buffers; those that the kernel may write are the outputs."""
        device = runtime.get()
        if self._function is None:
            self._function = device.load(self.image, self.kernel.name)[0]
        arrays = self.arrays()
        roles = {buffer.name: buffer.role for buffer in self._buffers()}
        check.declare(
            read_only={name: array for name, array in arrays.items() if roles[name] == "in"},
            zero_at_end={name: array for name, array in arrays.items() if roles[name] == "zero"},
            others=arrays,
        )
        kernargs = device.kernarg_buffer(self.kernel.explicit_bytes, self.kernel.offsets)
        kernargs.block[:] = self.kernarg(arrays)
        device.launch(
            self._function, self.grid, self.workgroup, kernargs, 0, self.dynamic_lds_bytes
        )
        outputs = {}
        for name, array in arrays.items():
            if roles[name] in ("out", "inout"):
                host = host_empty(array.shape, as_dtype(array.dtype))
                device.download(host.ctypes.data, array.address, host.nbytes)
                outputs[name] = host
        device.synchronize(0)
        return outputs


def _choose(kernels: Mapping[str, KernelInfo], name: str | None, path: Path) -> KernelInfo:
    have = ", ".join(sorted(kernels))
    if name is None:
        if len(kernels) > 1:
            raise ValueError(f"{path} holds several kernels; choose one with --kernel: {have}")
        return next(iter(kernels.values()))
    if name not in kernels:
        raise ValueError(f"kernel {name!r} is not in {path}; it has {have}")
    return kernels[name]


def _workgroup(kernel: KernelInfo, given: tuple[int, int, int] | None) -> tuple[int, int, int]:
    required = kernel.workgroup
    workgroup = given or required
    if workgroup is None:
        raise ValueError(f"kernel {kernel.name} does not say its workgroup; give --workgroup")
    if required is not None and workgroup != required:
        raise ValueError(
            f"workgroup {workgroup} is not {required}, which {kernel.name} was compiled for"
        )
    lanes = math.prod(workgroup)
    if lanes > kernel.max_lanes:
        raise ValueError(
            f"workgroup {workgroup} has {lanes} lanes; {kernel.name} takes {kernel.max_lanes}"
        )
    return workgroup
