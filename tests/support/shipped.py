"""Kernels that are shipped for the architecture that the tests run on. Binds no device."""

from __future__ import annotations

import functools
import os

from amdattn.arch.products import REFERENCE
from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.device import binding, manifest
from amdattn.device.manifest import KernelSpec


@functools.cache
def props() -> DeviceProps:
    """Of the device that AMDATTN_DEVICE has the virtual device play."""
    request = os.environ.get(binding.ENVIRONMENT_VARIABLE, f"virtual:{REFERENCE.arch}")
    return as_device_props(binding.choose(request, "").plays)


def shipped(*ops: str) -> list[KernelSpec]:
    """Kernels of these operations, or of all, for its architecture."""
    return [
        row for row in manifest.kernels() if row.arch == props().arch and (not ops or row.op in ops)
    ]
