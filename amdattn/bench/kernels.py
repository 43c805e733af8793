"""What a benchmark runs: launches of loaded kernels, and device memory for their operands."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from amdattn.bench.inputs import NORMAL, Inputs, Place, normal
from amdattn.bench.shapes import Shape
from amdattn.device import runtime
from amdattn.device.code_object import read_kernels
from amdattn.device.runtime.launch_form import LaunchForm
from amdattn.dtypes import BFLOAT16
from amdattn.ops.attention.problem import axis_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTES_PER_ELEMENT = 2
_PART = 2**22  # elements that are generated and copied at a time


@dataclass(frozen=True)
class Walk:
    """What each workgroup of a launch reads, by flat id.

    Attributes
    ----------
    kv_rows : (workgroups,) int64
        Its work: the rows of K and V that it processes, in whole tiles.
    batch : (workgroups,) int64
        The batch entry.
    q_end : (workgroups,) int64
        One past the last row of Q that it may read.
    stream : (workgroups,) int64
        Which K and V it reads: batch * num_heads_kv + head_kv.
    kv_begin, kv_end : (workgroups,) int64
        The rows of K and V that it reads. If a workgroup makes two walks, the second continues
        beyond the last row.
    """

    kv_rows: NDArray[np.int64]
    batch: NDArray[np.int64]
    q_end: NDArray[np.int64]
    stream: NDArray[np.int64]
    kv_begin: NDArray[np.int64]
    kv_end: NDArray[np.int64]


@dataclass(frozen=True)
class Launch:
    """One launch, without the loaded function.

    Attributes
    ----------
    image : bytes
        The code object.
    symbol : str
        The kernel in it.
    grid, workgroup : tuple of int
        Workgroups of the grid, and lanes of a workgroup, along x, y and z.
    kernarg : bytes
        The packed arguments.
    dynamic_lds_bytes : int
    variables : tuple of (str, bytes)
        Device variables of the code object to set before the launch, by name.
    """

    image: bytes
    symbol: str
    grid: tuple[int, int, int]
    workgroup: tuple[int, int, int]
    kernarg: bytes
    dynamic_lds_bytes: int = 0
    variables: tuple[tuple[str, bytes], ...] = ()

    @property
    def sha256(self) -> str:
        """Hex digest of the code object."""
        return hashlib.sha256(self.image).hexdigest()

    @property
    def num_workgroups(self) -> int:
        """Workgroups of the whole grid."""
        x, y, z = self.grid
        return x * y * z

    @property
    def num_waves(self) -> int:
        """Waves of one workgroup."""
        x, y, z = self.workgroup
        return -(-x * y * z // 64)

    def enqueue(self, functions: Functions) -> None:
        """Launch on the default stream."""
        device = runtime.get()
        function = functions.of(self.image, self.symbol)
        for name, contents in self.variables:
            functions.set_variable(self.image, name, contents)
        offsets = functions.argument_offsets(self.image, self.symbol)
        kernargs = device.kernarg_buffer(len(self.kernarg), offsets)
        kernargs.block[:] = self.kernarg
        device.launch(function, self.grid, self.workgroup, kernargs, 0, self.dynamic_lds_bytes)


class Functions:
    """Loaded code objects; they stay loaded for the life of the process."""

    def __init__(self) -> None:
        self._modules: dict[bytes, Any] = {}
        self._loaded: dict[tuple[bytes, str], Any] = {}

    def of(self, image: bytes, symbol: str) -> Any:
        """The loaded kernel; the kernels of a code object share its device variables."""
        if (image, symbol) in self._loaded:
            return self._loaded[image, symbol]
        device = runtime.get()
        if image in self._modules:
            found = device.hip.hipModuleGetFunction(self._modules[image], symbol.encode())
            function = device.check("hipModuleGetFunction", found)
        else:
            function, self._modules[image] = device.load(image, symbol)
        self._loaded[image, symbol] = function
        return function

    def argument_offsets(self, image: bytes, symbol: str) -> tuple[int, ...]:
        """Offsets of a kernel's arguments if the device takes them one by one, else ()."""
        if runtime.get().launch_form is not LaunchForm.PARAMS:
            return ()
        return read_kernels(image, symbol)[symbol].offsets

    def set_variable(self, image: bytes, name: str, contents: bytes) -> None:
        """Set a device variable, in the order of the default stream.

        A kernel of the code object must have been loaded before.

        Raises
        ------
        ValueError
            `contents` are longer than the variable.
        """
        device = runtime.get()
        found = device.hip.hipModuleGetGlobal(self._modules[image], name.encode())
        address, nbytes = device.check("hipModuleGetGlobal", found)
        if len(contents) > nbytes:
            raise ValueError(f"{name} has {nbytes} bytes, but {len(contents)} are to be written")
        host = np.frombuffer(contents, np.uint8)
        device.upload(int(address), host.ctypes.data, host.nbytes)


class Titled(Protocol):
    """What names a row of a benchmark."""

    @property
    def peer(self) -> str:
        """The owner of the kernel: "amdattn", the name of another project, or object=FILE."""
        ...

    @property
    def round_mode(self) -> str:
        """Rounding of the probabilities."""
        ...


class Operands(contextlib.ExitStack):
    """Device memory for the arrays of one shape, freed at the end of a `with` block.

    Shorter problems use the same addresses and strides. On the virtual device memory takes no
    space until it is written, so only filling the rows that are read costs anything.

    Parameters
    ----------
    shape : Shape
    inputs : Inputs
        Contents of q, k and v.

    Raises
    ------
    ValueError
        `inputs` cannot fill arrays of this shape.
    """

    def __init__(self, shape: Shape, inputs: Inputs = NORMAL) -> None:
        super().__init__()
        self.shape, self.inputs = shape, inputs
        inputs.check(shape.sizes)
        problem = shape.problem("rtne")
        self.addresses: dict[str, int] = {}
        device = runtime.get()
        for name in ("q", "k", "v", "o", "lse", "sinks"):
            count = problem.num_heads_q * 2  # of float32
            if name == "lse":
                count *= problem.batch * problem.seqlen_q
            elif name != "sinks":
                count = int(np.prod(problem.shape(name, shape.layout)))
            self.addresses[name] = device.malloc(count * BYTES_PER_ELEMENT)
            self.callback(device.free, self.addresses[name])
        self._workspace_bytes = 0
        self._filled: dict[tuple[str, int], int] = {}
        self.dtype = BFLOAT16.numpy()
        sinks = np.random.default_rng(0).standard_normal(shape.heads_q, np.float32)
        device.upload(self.addresses["sinks"], sinks.ctypes.data, sinks.nbytes)
        runtime.synchronize()

    def strides(self, operand: str) -> dict[str, int]:
        """Strides by axis, in elements."""
        return self.shape.strides(operand)

    def workspace(self, nbytes: int) -> int:
        """Address of at least `nbytes` of workspace; it stays the same while it is large enough."""
        if nbytes > self._workspace_bytes:
            device = runtime.get()
            self._workspace_bytes = nbytes
            self.addresses["workspace"] = device.malloc(nbytes)
            self.callback(device.free, self.addresses["workspace"])
        return self.addresses["workspace"]

    def fill_all(self) -> None:
        """Fill all of q, k and v with the inputs."""
        for batch in range(self.shape.batch):
            self._fill("q", batch, self.shape.seqlen_q)
            for operand in "kv":
                self._fill(operand, batch, self.shape.seqlen_kv)
        runtime.synchronize()

    def fill_for(self, shape: Shape, walk: Walk, workgroups: NDArray[np.int64]) -> None:
        """Fill the rows that these workgroups of a shorter shape read."""
        for batch in np.unique(walk.batch[workgroups]):
            here = workgroups[walk.batch[workgroups] == batch]
            self._fill("q", int(batch), min(int(walk.q_end[here].max()), shape.seqlen_q))
            for operand in "kv":
                self._fill(operand, int(batch), shape.seqlen_kv)
        runtime.synchronize()

    def _fill(self, operand: str, batch: int, rows: int) -> None:
        begin = self._filled.get((operand, batch), 0)
        if rows <= begin:
            return
        self._filled[operand, batch] = rows
        heads = self.shape.sizes.shape(operand)[2]
        if axis_order(self.shape.layout)[1] == "seq":
            self._put(Place(operand, batch, begin), rows, heads)
            return
        for head in range(heads):
            self._put(Place(operand, batch, begin, head), rows, 1)

    def _put(self, place: Place, end: int, heads: int) -> None:
        """Fill rows from `place` up to `end` of `heads` heads that are adjacent in memory."""
        device, strides = runtime.get(), self.strides(place.operand)
        at_once = max(1, _PART // strides["seq"])
        for row in range(place.row, end, at_once):
            part = self._made(
                dataclasses.replace(place, row=row), min(at_once, end - row), heads
            ).astype(self.dtype)
            at = sum(getattr(place, axis) * strides[axis] for axis in ("batch", "head"))
            at += row * strides["seq"]
            address = self.addresses[place.operand] + at * BYTES_PER_ELEMENT
            device.upload(address, part.ctypes.data, part.nbytes)

    def _made(self, place: Place, rows: int, heads: int) -> NDArray[np.float32]:
        """Contents: (rows, heads, columns) float32."""
        strides, sizes = self.strides(place.operand), self.shape.sizes
        shape = rows, heads, sizes.shape(place.operand)[3]
        at = place.row * strides["seq"] + place.head * strides["head"]
        some = normal(place.operand, at, int(np.prod(shape)))
        return self.inputs.rows(sizes, place, some.reshape(shape))
