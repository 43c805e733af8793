"""What `amdattn check` can run: operations of the package, and kernels of code object files."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import amdattn
from amdattn.arch.props import DeviceProps
from amdattn.arrays.buffers import DeviceArray, empty, host_empty
from amdattn.arrays.interchange import asarray
from amdattn.checking import gemm
from amdattn.checking.arguments import Argument, Buffer, place
from amdattn.checking.session import Check
from amdattn.device import manifest, runtime
from amdattn.device.code_object import KernelInfo, read_kernels
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.errors import ManifestError, UnsupportedProblem
from amdattn.ops.attention import planning, select
from amdattn.ops.attention.problem import VARLEN_LAYOUT, AttentionProblem
from amdattn.ops.gemm.planning import GEMM
from amdattn.testing.selftest import Case, inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Attention:
    """Attention forward on random inputs.

    Parameters
    ----------
    options : tuple of (str, object)
        Further arguments of `plan_attention`: dtype, head_dim_v, masks, num_splits, ...
    lengths : tuple of (int, int)
        Rows of q and of k of every sequence, instead of those of `case`.
    kernel : str
        Of the manifest: plan with this forward kernel, whatever others there are.
    scale_v : float
        Factor of v.
    """

    case: Case
    seed: int = 0
    return_lse: bool = True
    options: tuple[tuple[str, Any], ...] = ()
    lengths: tuple[tuple[int, int], ...] = ()
    kernel: str = ""
    scale_v: float = 1

    @property
    def title(self) -> str:
        """One line for people."""
        options = "".join(f" {name}={value}" for name, value in self.options)
        if self.scale_v != 1:
            options += f" v*{self.scale_v:g}"
        lengths = f" lengths {self.lengths}" if self.lengths else ""
        return f"attention {self.case}{options}{lengths}{'' if self.return_lse else ' no lse'}"

    def plan(self) -> amdattn.AttentionPlan:
        """The plan on the bound device; raises UnsupportedProblem if no kernel does it."""
        case, options = self.case, dict(self.options)
        if self.lengths:
            rows, keys = zip(*self.lengths, strict=True)
            case = dataclasses.replace(
                case, batch=len(rows), seqlen_q=max(rows), seqlen_kv=max(keys)
            )
            options |= {"total_q": sum(rows), "total_kv": sum(keys)}
        problem = AttentionProblem(
            *(case.batch, case.seqlen_q, case.seqlen_kv, case.num_heads_q, case.num_heads_kv),
            case.head_dim,
            softmax_scale=case.softmax_scale,
            return_lse=self.return_lse,
            **options,
        )
        return planned(problem, runtime.device_props(), self.kernel)

    def run(self, check: Check) -> Outputs:
        """Launch once; what the operation reads may not be written."""
        plan = self.plan()
        problem, layout = plan.problem, self.case.layout
        shaped = VARLEN_LAYOUT if problem.varlen else layout
        operands = {name: asarray(data) for name, data in self._inputs(plan).items()}
        check.declare(read_only=operands)
        outputs = {"out": empty(problem.shape("o", shaped), problem.dtype)}
        if self.return_lse:
            outputs["lse"] = empty(problem.shape("lse", shaped), "float32")
        check.declare(others=outputs)
        plan.run(**operands, **outputs, layout=layout)
        return {name: array.numpy() for name, array in outputs.items()}

    def _inputs(self, plan: amdattn.AttentionPlan) -> dict[str, NDArray[Any]]:
        problem, case = plan.problem, self.case
        if self.lengths:
            sums = np.cumsum([(0, 0), *self.lengths], axis=0, dtype=np.int32)
            case = dataclasses.replace(
                case, batch=1, seqlen_q=int(sums[-1, 0]), seqlen_kv=int(sums[-1, 1])
            )
        arrays: dict[str, NDArray[Any]] = dict(zip("qkv", inputs(case, self.seed), strict=True))
        if problem.head_dim_v != problem.head_dim:
            case = dataclasses.replace(case, head_dim=problem.head_dim_v)
            arrays["v"] = inputs(case, self.seed + 1)[2]
        arrays["v"] = arrays["v"] * np.float32(self.scale_v)
        element = as_dtype(problem.dtype).numpy()
        for name, x in arrays.items():
            of_element = x if x.dtype == element else x.astype(element)
            arrays[name] = of_element[0] if self.lengths else of_element
        if problem.sinks:
            rng = np.random.default_rng(self.seed)
            arrays["sinks"] = rng.standard_normal(problem.num_heads_q, np.float32)
        if self.lengths:
            arrays["cu_seqlens_q"] = np.ascontiguousarray(sums[:, 0])
            arrays["cu_seqlens_k"] = np.ascontiguousarray(sums[:, 1])
        return arrays


def planned(problem: AttentionProblem, props: DeviceProps, kernel: str) -> amdattn.AttentionPlan:
    """The plan with a forward kernel of this name, or with the one that the manifest prefers."""
    rows = [
        row for row in manifest.kernels() if row.op != select.ATTENTION or kernel in ("", row.name)
    ]
    plan = planning.plan_attention(problem, props, rows)
    fields = {field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)}
    return amdattn.AttentionPlan(**fields)


# Around the tiles (384 rows of Q, 32 of KV) and around powers of two, with GQA, MQA, several batch
# entries, both layouts and strided operands.
_CASES = (
    *(Case(n, n) for n in (1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 383, 384, 385)),
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
# Of every forward kernel, as far as it takes them.
_OPTIONS: tuple[tuple[Case, dict[str, Any], tuple[tuple[int, int], ...]], ...] = (
    (Case(130, 90, num_heads_q=2, num_heads_kv=1), {"num_splits": 1}, ()),
    (Case(140, 200, num_heads_q=2), {"causal": True, "sinks": True, "num_splits": 3}, ()),
    (Case(70, 290, batch=2), {"window_size": (40, 20), "num_splits": 1}, ()),
    (Case(0, 0, num_heads_q=2), {"causal": True, "num_splits": 2}, ((30, 70), (0, 9), (66, 0))),
    (Case(40, 70, special=True), {"num_splits": 2}, ()),
    (
        Case(90, 130, num_heads_q=4),
        {"window_size": (33, 8), "sinks": True, "num_splits": 4},
        (),
    ),
    (Case(150, 60), {"causal": True, "top_left": True, "num_splits": 1}, ()),
    (
        Case(0, 0, num_heads_q=2),
        {"window_size": (50, 0), "sinks": True, "num_splits": 1},
        ((1, 100), (0, 0), (120, 40)),
    ),
)
# Values that are no float16s when they are bfloat16s: such a tile is done twice.
_LARGE = (Case(100, 90, num_heads_q=2), {"causal": True, "sinks": True, "num_splits": 2}, ())
# Of kernels whose tiles have several heads.
_HEADS = (
    Case(50, 200, num_heads_q=8, num_heads_kv=2),
    {"window_size": (127, 0), "sinks": True},
    (),
)
# Rows of K and V copied together first: the kernel of that, at a head size that is no power of two.
_GATHERED: tuple[tuple[Case, dict[str, Any], tuple[tuple[int, int], ...]], ...] = (
    (
        Case(33, 130, batch=2, num_heads_q=3, num_heads_kv=3, head_dim=72),
        {"gather": "kv", "head_dim_v": 40},
        (),
    ),
    (Case(0, 0, num_heads_q=2, num_heads_kv=2), {"gather": "k"}, ((30, 70), (0, 9), (66, 0))),
)


def every_operation(seed: int) -> list[Attention | gemm.Gemm]:
    """Every operation and every kernel shipped for the bound device, at sizes that fit no tile.

    Raises
    ------
    ManifestError
        A kernel is shipped that none of the cases reaches.
    """
    subjects: list[Attention | gemm.Gemm] = [
        Attention(case, seed, return_lse=i % 3 > 0) for i, case in enumerate(_CASES)
    ]
    subjects += [
        Attention(case, seed, options=tuple(options.items()), lengths=lengths)
        for case, options, lengths in _GATHERED
    ]
    props = runtime.device_props()
    rows = [row for row in manifest.kernels() if row.arch == props.arch]
    for row in rows:
        if row.op == select.ATTENTION:
            subjects += _of_kernel(row, seed)
        elif row.op == GEMM:
            subjects += gemm.of_kernel(row, seed)
    reached = {launch.kernel for subject in subjects for launch in subject.plan().launches}
    missed = [row.name for row in rows if row not in reached]
    if missed:
        raise ManifestError(f"no case of `amdattn check all` reaches kernel {', '.join(missed)}")
    return subjects


def _of_kernel(row: KernelSpec, seed: int) -> list[Attention]:
    """One forward kernel with the options that it takes, at its own head sizes and at others."""
    (mode,) = row.accepts["round_mode"]
    own = row.params["head_dim"], row.params["head_dim_v"]
    others = row.params["head_dim"] - 24, row.params["head_dim"] - 8
    subjects = []
    for dims, (case, options, lengths), scale_v in (
        *((own, one, 1) for one in _OPTIONS),
        *((others, one, 1) for one in _OPTIONS[-2:]),
        (own, _LARGE, 1e4),
        *((own, one, 1) for one in (_HEADS,) if row.accepts["max_tile_heads"] > 1),
    ):
        member = {"dtype": row.dtype, "head_dim_v": dims[1], "round_mode": mode}
        if row.accepts["softcaps"][1]:
            member["softcap"] = 2.0
        subject = Attention(
            dataclasses.replace(case, head_dim=dims[0]),
            seed,
            options=tuple((member | options).items()),
            lengths=lengths,
            kernel=row.name,
            scale_v=scale_v,
        )
        with contextlib.suppress(UnsupportedProblem):
            subject.plan()
            subjects.append(subject)
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
