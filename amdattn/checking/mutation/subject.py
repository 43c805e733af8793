"""What a campaign mutates: a kernel with launches that reach its paths.

A launch is plain data (bytes of buffers, a kernarg block, where in it addresses go), so that it can
be sent to another process and run there on any version of the code object.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from amdattn import manifest
from amdattn.device import DeviceProps
from amdattn.dtypes import as_dtype
from amdattn.kernarg import packer
from amdattn.manifest import KernelSpec
from amdattn.plan import Address, Stride
from amdattn.plan.attention import plan_attention
from amdattn.problem import AttentionProblem


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


# (batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, lse): whole tiles and tails of both
# sequences, one tile and several, grouped heads, batches, with and without lse.
_ATTENTION_CASES = (
    (1, 129, 200, 2, 1, True),
    (2, 37, 64, 2, 2, True),
    (1, 40, 37, 1, 1, True),
    (1, 24, 61, 1, 1, True),
    (1, 130, 121, 1, 1, False),
    (1, 300, 300, 4, 2, True),
)


def shipped_subjects(props: DeviceProps) -> list[Subject]:
    """Every shipped kernel for a device, launched as the package's operations launch it."""
    builders = {"attn_fwd": _attention}
    return [builders[kernel.op](kernel, props) for kernel in manifest.kernels()]


def _attention(kernel: KernelSpec, props: DeviceProps) -> Subject:
    cases = tuple(_attention_case(kernel, props, *case) for case in _ATTENTION_CASES)
    return Subject(kernel.name, kernel.read_code_object(), kernel.symbol, cases)


def _attention_case(
    kernel: KernelSpec,
    props: DeviceProps,
    batch: int,
    seqlen_q: int,
    seqlen_kv: int,
    num_heads_q: int,
    num_heads_kv: int,
    lse: bool,
) -> Case:
    rng = np.random.default_rng(seqlen_q * 1000 + seqlen_kv)
    dtype = as_dtype(kernel.dtype).numpy()
    problem = AttentionProblem(
        *(batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv),
        *(kernel.head_dim, kernel.head_dim_v, kernel.dtype),
        return_lse=lse,
    )
    shapes = {name: problem.shape(name, "bshd") for name in "qkvo"}
    (launch,) = plan_attention(problem, props, [kernel]).launches
    buffers = [
        read_only(name, rng.standard_normal(shapes[name], np.float32).astype(dtype).tobytes())
        for name in "qkv"
    ]
    buffers.append(unwritten("o", int(np.prod(shapes["o"])) * dtype.itemsize))
    if lse:
        buffers.append(unwritten("lse", 4 * batch * num_heads_q * seqlen_q))
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
            _, seq, heads, dim = shapes[value.operand]
            strides = {"batch": seq * heads * dim, "seq": heads * dim, "head": dim}
            values.append(strides[value.axis])
        else:
            values.append(value)
    block = bytearray(layout.size)
    layout.pack_into(block, 0, *values)
    name = f"{batch}x{seqlen_q}x{seqlen_kv}x{num_heads_q}:{num_heads_kv}" + (
        "" if lse else " no lse"
    )
    return Case(name, launch.grid, kernel.workgroup, bytes(block), tuple(pointers), tuple(buffers))
