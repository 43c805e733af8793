"""The device for which programs are planned."""

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
    """Plan programs that are lowered in a ``with`` block for a device that need not be present.

    For example, for ``jax.export.export(f, platforms=["rocm"])`` on a machine without a GPU.
    Programs that JAX has lowered before are not lowered again.

    Parameters
    ----------
    device : DeviceProps or str
        Facts of the device, or a known name such as "MI300X".

    Raises
    ------
    ValueError
        `device` is neither.
    """
    token = _chosen.set(as_device_props(device))
    try:
        yield
    finally:
        _chosen.reset(token)


def traced_props() -> DeviceProps:
    """The device that determines 8-bit types of results while no platform is known yet."""
    return _chosen.get() or runtime.device_props()


def chosen_props(platform: str) -> DeviceProps:
    """The device for which programs of a platform are planned."""
    return _chosen.get() or targets.device_of(platform).props
