"""Plan once, run many times: a plan without allocation, captured in a HIP graph and replayed.

    python examples/plan_and_graph.py

Inputs change in place between replays; every result is held against float64.
"""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.table import Table

import amdattn
from amdattn.testing import attention, attention_rounded, compare

SHAPE = 1, 150, 2, 128  # batch, seqlen, heads, head_dim
REPLAYS = 3


def call(function, *args):
    """A function of hip-python; its results without the error code, which must be 0."""
    error, *results = function(*args)
    if int(error):
        raise RuntimeError(f"{function.__name__}: {error.name}")
    return results[0] if results else None


def main() -> int:
    """Plan, capture, replay, compare; the exit code."""
    rng = np.random.default_rng(0)
    host = [rng.standard_normal(SHAPE, np.float32).astype(ml_dtypes.bfloat16) for _ in range(3)]
    q, k, v = map(amdattn.asarray, host)  # on the device
    batch, seqlen, heads, head_dim = SHAPE
    sizes = (batch, seqlen, seqlen, heads, heads, head_dim)
    plan = amdattn.plan_attention(*sizes, num_splits=3, device=amdattn.device_props())
    console = Console()
    console.print(plan.explain(), highlight=False)

    from hip import hip  # that of the device that amdattn has bound

    out = amdattn.empty(SHAPE)
    workspace = amdattn.empty((plan.workspace.total_bytes,), "uint8")  # partial results
    stream = call(hip.hipStreamCreate)
    run = {"workspace": workspace, "stream": stream}
    plan.run(q, k, v, out, **run)  # once outside of the graph: this loads the kernel
    amdattn.synchronize()
    call(hip.hipStreamBeginCapture, stream, hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal)
    plan.run(q, k, v, out, **run)
    graph = call(hip.hipStreamEndCapture, stream)
    executable = call(hip.hipGraphInstantiateWithFlags, graph, 0)

    table = Table("replay", "largest error", "allowed", "")
    good = True
    for replay in range(REPLAYS):
        host[0] = rng.standard_normal(SHAPE, np.float32).astype(ml_dtypes.bfloat16)
        to_device = hip.hipMemcpyKind.hipMemcpyHostToDevice
        call(hip.hipMemcpy, q.address, host[0].ctypes.data, host[0].nbytes, to_device)
        call(hip.hipGraphLaunch, executable, stream)
        call(hip.hipStreamSynchronize, stream)
        found = compare(out.numpy(), attention(*host)[0], attention_rounded(*host))
        good = good and found.ok
        cells = (f"{found.max_error:.2e}", f"{found.tolerance:.2e}", "ok" if found else "WRONG")
        table.add_row(str(replay), *cells)
    console.print(table)
    for destroy, what in (
        (hip.hipGraphExecDestroy, executable),
        (hip.hipGraphDestroy, graph),
        (hip.hipStreamDestroy, stream),
    ):
        call(destroy, what)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
