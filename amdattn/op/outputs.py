"""Arrays of callers into which results are written."""

from __future__ import annotations

from typing import Any

from amdattn.arrays.buffers import DeviceArray
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View


def capture_text(missing: list[str], nbytes: int) -> str:
    """The message for a run in a capture that lacks arrays: nothing can be allocated there."""
    workspace = f"workspace=plan.new_workspace() (a plan's run takes it, of {nbytes} bytes)"
    names = [*(f"{name}=" for name in missing), *([workspace] if nbytes else [])]
    return (
        "a graph is being captured from the stream: what its replays write must last as long as "
        f"the graph, so pass {' and '.join(names)}"
    )


def output_view(x: Any, name: str, stream: int) -> View:
    """View the memory of an array that is written."""
    if isinstance(x, DeviceArray):
        return x.view_on(stream)
    if type(x).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise TypeError(f"{name} is a JAX array, which cannot be written; leave {name} out")
    return as_view(x, name, stream, is_output=True)
