"""Small operands on the host, such as one number for each head, with others on the device."""

from __future__ import annotations

from typing import Any

from amdattn.arrays.buffers import upload
from amdattn.arrays.interchange import as_view
from amdattn.arrays.views import View
from amdattn.device import runtime


def view_colocated(array: Any, label: str, ordinal: int | None, stream: int) -> View:
    """View a caller's array where `colocated` puts it."""
    return colocated(as_view(array, label, stream), label, ordinal, stream)


def colocated(view: View, label: str, ordinal: int | None, stream: int) -> View:
    """Return a view where the other operands are: a copy if only they are on a device.

    Parameters
    ----------
    ordinal : int or None
        The device of the other operands; None: the host.

    Raises
    ------
    ValueError
        A copy is needed while a graph is being captured.
    """
    if view.array is None or ordinal is None:
        return view
    import numpy as np

    refuse_capture(label, f"a {view.dtype.name} array", stream)
    host = np.ascontiguousarray(view.array)
    return upload(host, runtime.get(ordinal)).view_on(stream)


def refuse_capture(label: str, what: str, stream: int) -> None:
    """Raise if a graph is being captured: its replays would not repeat a copy made now."""
    if stream and runtime.get().is_capturing(stream):
        raise ValueError(
            f"a graph is being captured from the stream: {label} must be {what} in device memory, "
            "which replays read"
        )
