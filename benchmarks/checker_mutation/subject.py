"""What a campaign mutates: a kernel with launches that reach its paths.

A launch is plain data (bytes of buffers, a kernarg block, where in it addresses go), so that it can
be sent to another process and run there on any version of the code object.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from amdattn.arch.props import DeviceProps
from amdattn.device import manifest
from amdattn.device.kernarg import packer
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.indices import NARROW
from amdattn.op.plan import Address, PerRun, Stride
from amdattn.ops.attention import select
from amdattn.ops.attention.planning import PlannedAttention, build, choices, plan_attention
from amdattn.ops.attention.problem import VARLEN_LAYOUT, AttentionProblem
from amdattn.ops.attention.scheduling import ENTRIES, MERGES, SCHEDULE
from amdattn.ops.attention_backward.cases import OPERATION as BACKWARD
from amdattn.ops.cache_attention.kernels import DECODE
from amdattn.ops.gemm.planning import GEMM
from amdattn.ops.registry import operations
from benchmarks.checker_mutation import cases
from benchmarks.checker_mutation.cases import AttentionCase

COUNTERS = "counters"  # of the workspace
# Of a counter, as attn/epilogue.h has it: the run that counted last is above this bit.
_GENERATION_BIT = 17
_GENERATION, _OLDER = 2, 1  # the launch, and one before it that was aborted
_WAVES = 4  # of a workgroup


@dataclass(frozen=True, slots=True)
class Buffer:
    """Device memory of a launch.

    Attributes
    ----------
    data : bytes or None
        Contents before the launch; None: an allocation that nothing has written.
    output : bool
        Compared with the unmutated run.
    contract : {"", "read_only", "zero_at_end"}
        What the kernel promises about it.
    """

    name: str
    nbytes: int
    data: bytes | None = None
    output: bool = False
    contract: str = ""


def read_only(name: str, data: bytes) -> Buffer:
    """A const operand."""
    return Buffer(name, len(data), data, contract="read_only")


def unwritten(name: str, nbytes: int) -> Buffer:
    """A result, every byte of which the kernel must write."""
    return Buffer(name, nbytes, output=True)


@dataclass(frozen=True, slots=True)
class Case:
    """One launch.

    Attributes
    ----------
    kernarg : bytes
        The argument block without addresses.
    pointers : tuple of (offset in the block, index of the buffer)
    """

    name: str
    grid: tuple[int, int, int]
    workgroup: tuple[int, int, int]
    kernarg: bytes
    pointers: tuple[tuple[int, int], ...]
    buffers: tuple[Buffer, ...]
    dynamic_lds_bytes: int = 0

    @property
    def num_waves(self) -> int:
        """Waves of a workgroup."""
        x, y, z = self.workgroup
        return -(-x * y * z // 64)


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel and the launches on which its mutants are run, cheap ones first."""

    name: str
    image: bytes = field(repr=False)
    symbol: str
    cases: tuple[Case, ...]

    def __post_init__(self) -> None:
        if not self.cases:
            raise ValueError(f"{self.name}: there must be a launch of it, which no case has")

    @property
    def inputs(self) -> str:
        """Names these very launches."""
        digest = hashlib.sha256()
        for case in self.cases:
            digest.update(repr(dataclasses.replace(case, buffers=())).encode())
            for buffer in case.buffers:
                digest.update(repr(dataclasses.replace(buffer, data=None)).encode())
                digest.update(buffer.data or b"")
        return digest.hexdigest()[:16]

    @property
    def has_semaphores(self) -> bool:
        """Whether its launches leave counters as they were before."""
        return any(b.contract == "zero_at_end" for case in self.cases for b in case.buffers)


def shipped_subjects(props: DeviceProps, names: Collection[str] = ()) -> list[Subject]:
    """Shipped kernels for a device, launched as the package's operations launch them.

    Parameters
    ----------
    names : collection of str
        Of the manifest; none: every one.
    """
    # Which need what is above.
    from benchmarks.checker_mutation.backward import backward_subject
    from benchmarks.checker_mutation.decode import decode_subject
    from benchmarks.checker_mutation.gemm import gemm_subject
    from benchmarks.checker_mutation.indices import index_subject
    from benchmarks.checker_mutation.operation import operation_subject

    rows = [row for row in manifest.kernels() if row.arch == props.arch]
    users = {op: operation for operation in operations() for op in operation.kernel_ops}
    owners = users | {operation.kernel_ops[0]: operation for operation in operations()}

    def subject(row: KernelSpec) -> Subject:
        if row.op == GEMM:  # with what aborted launches leave
            return gemm_subject(row, props)
        if row.op == NARROW:  # which no operation's plan launches
            return index_subject(row)
        if row.op == DECODE:  # the same, in shares of any size
            return decode_subject(row, props)
        if row.op in BACKWARD.kernel_ops:  # around blocks of keys
            return backward_subject(row, props)
        if row.op in (select.ATTENTION, select.MERGE, select.GATHER, SCHEDULE):  # of one plan
            return _attention(row, rows, props)
        return operation_subject(owners[row.op], row, props)

    return [subject(row) for row in rows if not names or row.name in names]


def _attention(kernel: KernelSpec, rows: Sequence[KernelSpec], props: DeviceProps) -> Subject:
    """A kernel of attention forward, in the plans of whatever makes use of it."""
    forward = kernel
    problems = cases.FORWARD + cases.LARGE + cases.ENDS
    if kernel.op == select.ATTENTION and kernel.accepts["max_tile_heads"] > 1:
        problems = cases.WINDOW
    if kernel.op == select.MERGE:
        problems = cases.MERGE
        forward = next(row for row in rows if _merged_by(row, rows) is kernel)
    if kernel.op == SCHEDULE:
        problems = cases.SCHEDULE
        forward = next(row for row in rows if row.op == select.ATTENTION)
    if kernel.op == select.GATHER:
        problems = cases.GATHER
        # A head size that leaves lanes without a row.
        forward = next(
            row
            for row in rows
            if row.op == select.ATTENTION and row.params["head_dim"] & (row.params["head_dim"] - 1)
        )
    if kernel is not forward:  # which would merge some parts itself
        forward = select.merging_apart(forward)
    elif kernel.op == select.ATTENTION and kernel.accepts["max_merged_parts"] > 0:
        problems += cases.TOGETHER
    used = [forward, *(row for row in rows if row.op != select.ATTENTION)]
    taken = [case for case in problems if select.support(used, _problem(forward, case), props)]
    plans = [_plan(case, _problem(forward, case), _device(case, props), used) for case in taken]
    made = tuple(_attention_case(kernel, *pair) for pair in zip(taken, plans, strict=True))
    return Subject(kernel.name, kernel.read_code_object(), kernel.symbol, made)


def _plan(
    case: AttentionCase, problem: AttentionProblem, props: DeviceProps, rows: Sequence[KernelSpec]
) -> PlannedAttention:
    if not case.floats:
        return plan_attention(problem, props, rows)
    found = choices(problem, props, rows)
    return build(problem, props, found.items[0], found, keeps_floats=True)


def _device(case: AttentionCase, props: DeviceProps) -> DeviceProps:
    """What a launch is planned for."""
    if case.one_cu:
        return dataclasses.replace(props, num_cus=1, num_xcds=1)
    if case.one_xcd:
        return dataclasses.replace(props, num_cus=props.num_cus // props.num_xcds, num_xcds=1)
    return props


def _merged_by(row: KernelSpec, rows: Sequence[KernelSpec]) -> KernelSpec | None:
    if row.op != select.ATTENTION or row.accepts["max_num_splits"] == 1:
        return None
    return select.merge_kernel(rows, row, row.accepts["round_mode"][0])


def _problem(forward: KernelSpec, case: AttentionCase) -> AttentionProblem:
    options = dict(case.options)
    if forward.accepts["softcaps"][1]:
        options["softcap"] = 2.0
    if case.lengths:
        rows, keys = zip(*case.lengths, strict=True)
        options |= {"total_q": sum(rows), "total_kv": sum(keys)}
    dims = forward.params["head_dim"], forward.params["head_dim_v"]
    if case.narrow:
        dims = dims[0] * case.sixteenths // 16 // 8 * 8, case.narrow
    return AttentionProblem(
        *(case.batch, case.seqlen_q, case.seqlen_kv, case.num_heads_q, case.num_heads_kv),
        *dims,
        forward.dtype,
        round_mode=forward.accepts["round_mode"][0],
        return_lse=case.lse,
        **options,
    )


def _attention_case(kernel: KernelSpec, case: AttentionCase, plan: PlannedAttention) -> Case:
    problem = plan.problem
    launch = next(launch for launch in plan.launches if launch.kernel is kernel)
    layout_of = VARLEN_LAYOUT if problem.varlen else "bshd"
    shapes = {name: problem.shape(name, layout_of) for name in ("q", "k", "v", "o", "lse")}
    buffers = _contents(kernel, case, plan, shapes)
    index = {buffer.name: i for i, buffer in enumerate(buffers)}
    args = dict(launch.args)
    layout = packer(kernel)
    values: list[int | float] = []
    pointers = []
    offsets = {name: offset for name, offset, *_ in kernel.kernarg.fields}
    for name in layout.names:
        value = args[name]
        if isinstance(value, Address):
            if value.operand in index:
                pointers.append((offsets[name], index[value.operand]))
            values.append(0)
        elif isinstance(value, Stride):
            values.append(_stride(shapes[value.operand], value))
        else:
            values.append(_GENERATION if isinstance(value, PerRun) else value)
    block = bytearray(layout.size)
    layout.pack_into(block, 0, *values)
    return Case(
        *(case.name, launch.grid, kernel.workgroup, bytes(block), tuple(pointers)), tuple(buffers)
    )


def _stride(shape: Sequence[int], stride: Stride) -> int:
    """Of a compact tensor."""
    axes = ("batch", "head") if stride.operand == "lse" else ("batch", "seq", "head")
    return math.prod(shape[axes.index(stride.axis) - len(axes) :])


def _contents(
    kernel: KernelSpec,
    case: AttentionCase,
    plan: PlannedAttention,
    shapes: Mapping[str, tuple[int, ...]],
) -> list[Buffer]:
    """The memory of a launch: what the kernel reads, and what it writes."""
    problem = plan.problem
    rng = np.random.default_rng(case.seqlen_q * 1000 + case.seqlen_kv)
    dtype = as_dtype(problem.dtype).numpy()

    def normal(*shape: int) -> NDArray[np.float32]:
        return rng.standard_normal(shape, np.float32)

    if kernel.op == select.GATHER:
        copied = normal(*shapes["k"]).astype(dtype).tobytes()
        return [read_only("k", copied), unwritten("gathered_k", len(copied))]
    merges, schedules = kernel.op == select.MERGE, kernel.op == SCHEDULE
    in_launch = any(region.name == COUNTERS for region in plan.workspace.regions)
    buffers = []
    if schedules:
        regions = [r for r in plan.workspace.regions if r.name in (ENTRIES, MERGES)]
        buffers += [Buffer(r.name, r.nbytes, bytes(r.nbytes), output=True) for r in regions]
    elif not merges:
        q, k, v = (normal(*shapes[name]) for name in "qkv")
        keys = k.shape[-3]
        scaled = np.arange(v.shape[-1]) % 8 < (4 if case.halves else 8)
        v[..., scaled] *= np.float32(case.scale_v)
        k *= (case.growth ** (np.arange(keys, dtype=np.float32) / keys))[:, None, None]
        if case.calm:
            q[..., 1::2, :, :] /= 64
        if case.nan:
            q[..., 1::16, 0, 3] = np.nan
        if case.nan_k:
            k[..., -1, :] = np.nan
        if case.nan_v:
            v[..., -1, :] = np.nan
        with np.errstate(over="ignore"):  # to infinities, in float16
            held = [x.astype(dtype).tobytes() for x in (q, k, v)]
        buffers += [read_only(n, x) for n, x in zip("qkv", held, strict=True)]
    if problem.sinks and not schedules:
        sinks = normal(problem.num_heads_q) * np.float32(np.nan if case.nan_sink else 1)
        buffers.append(read_only("sinks", sinks.tobytes()))
    if case.lengths:
        sums = np.cumsum([(0, 0), *case.lengths], axis=0, dtype=np.int32)
        for name, column in (("cu_seqlens_q", 0), ("cu_seqlens_kv", 1)):
            buffers.append(read_only(name, sums[:, column].tobytes()))
    if schedules:
        return buffers
    if merges:
        parts = _parts(plan, normal, case.nan)
        buffers += [read_only(name, data.tobytes()) for name, data in parts.items()]
        if any(region.name == MERGES for region in plan.workspace.regions):
            buffers.append(read_only(MERGES, _merged_tiles(case, plan)))
    elif any(region.name == ENTRIES for region in plan.workspace.regions):
        tiles = _tiles(kernel, case, plan)
        buffers += [read_only(r.name, tiles) for r in _regions(plan) if r.name == ENTRIES]
        buffers += [region for region in _regions(plan) if region.name != ENTRIES]
        # Rows of tiles in parts are not written.
        sizes = {"o": math.prod(shapes["o"]) * dtype.itemsize, "lse": 4 * math.prod(shapes["lse"])}
        buffers += [Buffer(n, size, bytes(size), output=True) for n, size in sizes.items()]
    elif in_launch:  # what is there in the end depends on who arrives last
        buffers += [Buffer(r.name, r.nbytes) for r in plan.workspace.regions if r.name != COUNTERS]
        words = _counters(case, plan).tobytes()
        buffers.append(Buffer(COUNTERS, len(words), words, contract="zero_at_end"))
    else:  # rows of a part behind the last one are not written
        buffers += _regions(plan)
    if merges or in_launch or not plan.workspace.regions:
        of_o, of_lse = (4, 8) if case.floats else (dtype.itemsize, 4)
        buffers.append(unwritten("o", math.prod(shapes["o"]) * of_o))
        if case.lse:
            buffers.append(unwritten("lse", math.prod(shapes["lse"]) * of_lse))
    return buffers


def _regions(plan: PlannedAttention) -> list[Buffer]:
    """The workspace, zero."""
    return [Buffer(r.name, r.nbytes, bytes(r.nbytes), output=True) for r in plan.workspace.regions]


def _tiles(kernel: KernelSpec, case: AttentionCase, plan: PlannedAttention) -> bytes:
    """What a launch before has found out of the lengths: tiles, of which the first is in two parts.

    AttnScheduleEntry of asm_src/attn/schedule_entry.h; entries without rows are behind them.
    """
    found: list[tuple[int, ...]] = []
    q_base, kv_base = 0, 0
    in_parts = any(region.name == "partial_o" for region in plan.workspace.regions)
    for rows, keys in case.lengths:
        for start in range(0, rows, kernel.tile["q"]):
            parts = 2 if in_parts and not found else 1
            tile = (start, rows, keys, q_base, kv_base, 0)
            found += [(*tile, part, parts) for part in range(parts)]
        q_base, kv_base = q_base + rows, kv_base + keys
    return np.array(found, np.int32).tobytes().ljust(plan.workspace[ENTRIES].nbytes, b"\0")


def _merged_tiles(case: AttentionCase, plan: PlannedAttention) -> bytes:
    """The same for the kernel that merges: every tile is in two parts."""
    found: list[tuple[int, ...]] = []
    q_base, kv_base = 0, 0
    for rows, keys in case.lengths:
        for start in range(0, rows, plan.forward.kernel.tile["q"]):
            found.append((start, rows, keys, q_base, kv_base, 2 * len(found), 0, 2))
        q_base, kv_base = q_base + rows, kv_base + keys
    return np.array(found, np.int32).tobytes().ljust(plan.workspace[MERGES].nbytes, b"\0")


def _counters(case: AttentionCase, plan: PlannedAttention) -> NDArray[np.uint64]:
    """One for each part and wave, of which those of a tile's first part count: 0 or stale."""
    parts = dict(plan.launches[0].args)["parts"]
    assert isinstance(parts, int)
    words = np.zeros(plan.workspace[COUNTERS].nbytes // 8, np.uint64)
    if case.stale:
        words.reshape(-1, parts, _WAVES)[:, 0] = _OLDER << _GENERATION_BIT | 1
    return words


def _parts(
    plan: PlannedAttention, normal: Callable[..., NDArray[np.float32]], nan: bool
) -> dict[str, NDArray[np.float32]]:
    """Partial results, some without a key: of a row's first part, of all of its parts."""
    forward = plan.forward.kernel
    parts = dict(plan.forward.args)["parts"]
    assert isinstance(parts, int)
    count = plan.workspace["partial_max_sum"].nbytes // 8 // forward.tile["q"]
    max_sum = normal(count, forward.tile["q"], 2)
    sums = max_sum[..., 1]
    np.exp(sums, out=sums)
    sums[::parts, ::5] = sums[:, 1::5] = 0
    if nan:
        sums[1::parts, ::7] = np.nan
        max_sum[:, ::11, 0] *= np.float32(2.0**40)  # beyond what is kept of sums beside them
    o = normal(count, forward.tile["q"], forward.params["head_dim_v"])
    o[sums == 0] = np.nan  # must not be used
    return {"partial_o": o, "partial_max_sum": max_sum}
