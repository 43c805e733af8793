"""What `amdattn check` can run: operations of the package, and kernels of code object files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import amdattn
from amdattn import manifest, runtime
from amdattn.attention import plan_attention
from amdattn.buffers import DeviceArray, empty, host_empty
from amdattn.checking.arguments import Argument, Buffer, place
from amdattn.checking.code_object import KernelInfo, read_kernels
from amdattn.checking.mutation import subject as mutation_subject
from amdattn.checking.session import Check
from amdattn.dtypes import as_dtype
from amdattn.errors import ManifestError
from amdattn.interchange import asarray
from amdattn.testing.selftest import Case, inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Attention:
    """Attention forward on random inputs."""

    case: Case
    seed: int = 0
    return_lse: bool = True

    @property
    def title(self) -> str:
        """One line for people."""
        return f"attention {self.case}{'' if self.return_lse else ' no lse'}"

    def plan(self) -> amdattn.AttentionPlan:
        """The plan on the bound device; raises UnsupportedProblem if no kernel does it."""
        case = self.case
        return plan_attention(
            case.batch,
            case.seqlen_q,
            case.seqlen_kv,
            case.num_heads_q,
            case.num_heads_kv,
            case.head_dim,
            device=runtime.device_props(),
            softmax_scale=case.softmax_scale,
            return_lse=self.return_lse,
        )

    def run(self, check: Check) -> Outputs:
        """Launch once; q, k and v may not be written, the workspace must be left zero."""
        plan = self.plan()
        problem, layout = plan.problem, self.case.layout
        operands = dict(zip("qkv", map(asarray, inputs(self.case, self.seed)), strict=True))
        check.declare(read_only=operands)
        outputs = {"out": empty(problem.shape("o", layout), problem.dtype)}
        if self.return_lse:
            shape = (problem.batch, problem.num_heads_q, problem.seqlen_q)
            outputs["lse"] = empty(shape, "float32")
        check.declare(others=outputs)
        plan.run(**operands, **outputs, layout=layout)
        return {name: array.numpy() for name, array in outputs.items()}


# Around the tiles (128 rows of Q, 64 of KV) and around powers of two, with GQA, MQA, several batch
# entries, both layouts and strided operands.
_CASES = (
    *(Case(n, n) for n in (1, 63, 64, 65, 127, 128, 129, 255, 256, 257)),
    Case(1, 257),
    Case(257, 1),
    Case(33, 511, num_heads_q=4, num_heads_kv=2),
    Case(65, 129, num_heads_q=8, num_heads_kv=1),
    Case(129, 65, batch=2, num_heads_q=3, num_heads_kv=3),
    Case(100, 130, num_heads_q=3, num_heads_kv=1, layout="bhsd"),
    Case(97, 97, num_heads_q=2, num_heads_kv=2, packed=True),
    Case(65, 65, softmax_scale=-0.25),
    Case(40, 70, special=True),
)


def every_operation(seed: int) -> list[Attention]:
    """Every operation and every kernel shipped for the bound device, at sizes that fit no tile.

    Raises
    ------
    ManifestError
        A kernel is shipped that none of the cases reaches.
    """
    subjects = [Attention(case, seed, return_lse=i % 3 > 0) for i, case in enumerate(_CASES)]
    arch = runtime.device_props().arch
    reached = {launch.kernel for subject in subjects for launch in subject.plan().launches}
    missed = [row.name for row in manifest.kernels() if row.arch == arch and row not in reached]
    if missed:
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
        Lanes along x, y and z; None: what the kernel was compiled for.
    arguments : sequence of Argument
    dynamic_lds_bytes : int
    seed : int
        Varies random contents of buffers.

    Raises
    ------
    ValueError
        The file is no code object, or has no such kernel, or the arguments are not the kernel's.
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
        self._placed = place(arguments, self.kernel)
        self.dynamic_lds_bytes = dynamic_lds_bytes
        self._seed = seed
        self._function: Any = None
        for buffer in self._buffers():
            if buffer.fill == "file":
                buffer.contents(seed)  # a wrong file is an error before anything is launched

    @property
    def title(self) -> str:
        """One line for people."""
        return f"{self.path.name} {self.kernel.name} grid {self.grid} workgroup {self.workgroup}"

    def _buffers(self) -> list[Buffer]:
        return [argument for _, argument in self._placed if isinstance(argument, Buffer)]

    def arrays(self) -> dict[str, DeviceArray]:
        """Fresh buffers by name, with their contents."""
        return {
            buffer.name: (
                empty(buffer.shape, buffer.dtype)
                if buffer.role == "out"
                else asarray(buffer.contents(self._seed))
            )
            for buffer in self._buffers()
        }

    def kernarg(self, arrays: Mapping[str, DeviceArray]) -> bytes:
        """The explicit arguments, packed."""
        block = bytearray(self.kernel.explicit_bytes)
        for offset, argument in self._placed:
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
        kernargs = device.kernarg_buffer(self.kernel.explicit_bytes)
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

    def to_mutate(self) -> mutation_subject.Subject:
        """The same launch as a mutation campaign takes it."""
        block = bytearray(self.kernel.explicit_bytes)
        pointers: list[tuple[int, int]] = []
        buffers: list[mutation_subject.Buffer] = []
        for offset, argument in self._placed:
            if isinstance(argument, Buffer):
                pointers.append((offset, len(buffers)))
                data = None if argument.role == "out" else argument.contents(self._seed).tobytes()
                buffers.append(
                    mutation_subject.Buffer(
                        argument.name,
                        argument.nbytes,
                        data,
                        argument.role in ("out", "inout"),
                        {"in": "read_only", "zero": "zero_at_end"}.get(argument.role, ""),
                    )
                )
            else:
                packed = argument.packed()
                block[offset : offset + len(packed)] = packed
        case = mutation_subject.Case(
            self.title,
            self.grid,
            self.workgroup,
            bytes(block),
            tuple(pointers),
            tuple(buffers),
            self.dynamic_lds_bytes,
        )
        return mutation_subject.Subject(self.kernel.name, self.image, self.kernel.name, (case,))


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
