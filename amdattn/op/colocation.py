"""Small operands on the host, such as numbers of each head, beside others on the device."""

from __future__ import annotations

from typing import Any

from amdattn.arrays.buffers import View, upload
from amdattn.arrays.interchange import as_view
from amdattn.device import runtime


def view_colocated(array: Any, label: str, ordinal: int | None, stream: int) -> View:
    """See what a caller gives, as `colocated` has it."""
    return colocated(as_view(array, label, stream), label, ordinal, stream)


def colocated(view: View, label: str, ordinal: int | None, stream: int) -> View:
    """The same where the other operands are: copied if these are on a device, and it is not.

    Parameters
    ----------
    ordinal : int or None
        The device that others are on; None: the host.

    Raises
    ------
    ValueError
        It would be copied, and a graph is being captured.
    """
    if view.array is None or ordinal is None:
        return view
    import numpy as np

    refuse_capture(label, f"a {view.dtype.name} array", stream)
    host = np.ascontiguousarray(view.array)
    return upload(host, runtime.get(ordinal)).view_on(stream)


def refuse_capture(label: str, what: str, stream: int) -> None:
    """Raise if a graph is being captured, whose replays would not read what is copied now."""
    if stream and runtime.get().is_capturing(stream):
        raise ValueError(
            f"a graph is being captured from the stream: {label} must be {what} in device memory, "
            "which replays read"
        )
