"""Replays of a graph of the package's own launches, beside the same launches without one.

HIP of ROCm 7.2.0 to 7.2.3 was seen to replay graphs with wrong results, in one process of five
(clr#279): one replay, or ten, show little.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from amdattn.arrays.buffers import DeviceArray, empty
from amdattn.arrays.interchange import asarray
from amdattn.device import runtime
from amdattn.ops.attention.dense import flash_attn_func
from amdattn.ops.gemm.gemm import gemm_nt
from amdattn.ops.gemm.plans import plan_gemm
from amdattn.report.rows import Row, verdict

REPLAYS, QUICK_REPLAYS = 200, 20
_KNOWN = "; ROCm 7.2.0 to 7.2.3 do so (clr#279): use eager calls, or another version"
_ROWS, _COLUMNS, _DEPTH, _HEADS = 8, 256, 2048, 4
_POISON = 0xFF  # NaN in every word


class _Chain:
    """A chain of products, one of them split, and attention, each on the results before it."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        rng = np.random.default_rng(279)
        self._inputs = [
            rng.standard_normal((_ROWS, _DEPTH)).astype(np.float16) / 8 for _ in range(2)
        ]
        self._a = asarray(self._inputs[0])
        wide, square = (
            rng.standard_normal((_COLUMNS, depth)).astype(np.float16) / 8
            for depth in (_DEPTH, _COLUMNS)
        )
        self._weights = asarray(wide), asarray(square)
        shape = (1, _ROWS, _HEADS, _COLUMNS // _HEADS)
        self._hidden, self._rows = (empty((_ROWS, _COLUMNS), np.float16) for _ in range(2))
        self._out = empty(shape, np.float16)
        self._split = plan_gemm(
            _ROWS, _COLUMNS, _DEPTH, dtype="float16", split_k=4, device=runtime.device_props()
        )
        self._workspace = self._split.new_workspace()

    def begin(self, number: int) -> None:
        """Set new inputs, and clear all earlier results."""
        device, host = runtime.get(), self._inputs[number % 2]
        device.upload(self._a.address, host.ctypes.data, host.nbytes, self._stream)
        poison = np.full(self._hidden.nbytes, _POISON, np.uint8)
        for array in self._results():
            device.upload(array.address, poison.ctypes.data, array.nbytes, self._stream)
        device.synchronize(self._stream)

    def launch(self) -> None:
        """Run all launches of the chain on the stream."""
        wide, square = self._weights
        self._split.run(self._a, wide, self._hidden, workspace=self._workspace, stream=self._stream)
        gemm_nt(self._hidden, square, out=self._rows, split_k=1, stream=self._stream)
        x = self._rows.reshape(*self._out.shape)
        flash_attn_func(x, x, x, out=self._out, num_splits=1, stream=self._stream)

    def bits(self) -> list[NDArray[np.uint16]]:
        """The bits of all results; waits."""
        return [array.numpy().view(np.uint16) for array in self._results()]

    def _results(self) -> tuple[DeviceArray, ...]:
        return self._hidden, self._rows, self._out


def replays(count: int = REPLAYS) -> Iterator[Row]:
    """Check captured and replayed products and attention, bit by bit."""
    bound, hip = runtime.get(), runtime.get().hip
    with ExitStack() as stack:
        handle = bound.check("hipStreamCreate", hip.hipStreamCreate())
        stack.callback(hip.hipStreamDestroy, handle)
        stream = runtime.stream_handle(handle)
        chain = _Chain(stream)
        expected = []
        for number in range(2):
            chain.begin(number)
            chain.launch()
            expected.append(chain.bits())
        mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
        bound.check("hipStreamBeginCapture", hip.hipStreamBeginCapture(handle, mode))
        try:
            chain.launch()
        finally:
            ended = hip.hipStreamEndCapture(handle)
        graph = bound.check("hipStreamEndCapture", ended)
        stack.callback(hip.hipGraphDestroy, graph)
        made = hip.hipGraphInstantiateWithFlags(graph, 0)
        executable = bound.check("hipGraphInstantiateWithFlags", made)
        stack.callback(hip.hipGraphExecDestroy, executable)
        wrong = []
        for number in range(count):
            chain.begin(number)
            bound.check("hipGraphLaunch", hip.hipGraphLaunch(executable, handle))
            pairs = zip(chain.bits(), expected[number % 2], strict=True)
            if not all(np.array_equal(*pair) for pair in pairs):
                wrong.append(number)
        first = (
            f"{len(wrong)} of {count} differ, the first is replay {wrong[0] + 1}" if wrong else ""
        )
        yield verdict(
            "replays of products and attention",
            first + _KNOWN if wrong else "",
            f"{count} replays have the bits of eager calls",
            replays=count,
            differ=wrong,
        )
