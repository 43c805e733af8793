"""For which device programs are planned."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.device import runtime
from amdattn.jax import targets

_chosen: contextvars.ContextVar[DeviceProps | None] = contextvars.ContextVar(
    "_chosen", default=None
)


@contextlib.contextmanager
def lowering_for(device: DeviceProps | str) -> Iterator[None]:
    """Plan what is lowered inside for a device that need not be here.

    For ``jax.export.export(f, platforms=["rocm"])`` on a machine without a GPU. Programs that JAX
    has lowered before are not lowered again.

    Parameters
    ----------
    device : DeviceProps or str
        A known name such as "MI300X".
    """
    token = _chosen.set(as_device_props(device))
    try:
        yield
    finally:
        _chosen.reset(token)


def traced_props() -> DeviceProps:
    """Of the device whose types of 8 bits results have, where no platform is known yet."""
    return _chosen.get() or runtime.device_props()


def chosen_props(platform: str) -> DeviceProps:
    """Of the device that programs of a platform are planned for."""
    return _chosen.get() or targets.device_of(platform).props
