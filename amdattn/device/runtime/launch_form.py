"""How kernel arguments reach a kernel: as one packed block (`extra`), or one by one.

One block is faster, and every HIP runtime documents it, but one was seen to ignore it, so that
kernels wrote nothing. A small launch finds out which form works, before any result depends on it.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from amdattn.device import manifest
from amdattn.device.kernarg import KernargBuffer, packer
from amdattn.errors import AmdattnError, BindingError, UnsupportedDeviceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from amdattn.device.runtime import Runtime

_PROBED = "gather_rows"  # the operation of the kernel that is launched
_NON_BLOCKING = 1  # hipStreamNonBlocking: not ordered with the default stream
_ROW = bytes(range(1, 17))  # 8 elements of 2 bytes: what one lane of the kernel copies
_SOURCE, _TARGET, _DECOY, _BYTES = 0, 1024, 2048, 4096


class LaunchForm(Enum):
    """A way to pass kernel arguments to hipModuleLaunchKernel."""

    EXTRA = "extra"
    PARAMS = "kernelParams"


class Verdict(Enum):
    """The way in which a launch used its arguments."""

    WORKS = "works"
    WRITES_NOTHING = "the kernel wrote nothing"
    READS_LATE = "arguments are read after the call has returned"


def choose(device: Runtime) -> LaunchForm:
    """The form that a runtime takes, `extra` if both work. It launches and waits.

    Raises
    ------
    BindingError
        The runtime takes neither, or reads arguments when they may have been packed again.
    """
    failures = []
    for form in LaunchForm:
        try:
            verdict = probe(device, form)
        except UnsupportedDeviceError:  # kernels of others can still be launched
            return LaunchForm.EXTRA
        except AmdattnError as error:
            failures.append(f"{form.value}: {error}")
            continue
        if verdict is Verdict.WORKS:
            return form
        failures.append(f"{form.value}: {verdict.value}")
    raise BindingError(
        f"kernels cannot be launched through {device.choice.library}: {'; '.join(failures)}"
    )


def probe(device: Runtime, form: LaunchForm) -> Verdict:
    """Copy a row by a launch of one workgroup, and change its argument block right after the call.

    It runs on a stream of its own, and does not disturb graphs that are being captured. It needs a
    kernel for the device's architecture.
    """
    kernel = manifest.candidates(manifest.kernels(), _PROBED, device.props)[0]
    function, offsets, _image = device.load_kernel(kernel)
    packed = packer(kernel)
    kernargs = KernargBuffer(
        packed.size, device.launch_types, offsets if form is LaunchForm.PARAMS else None
    )
    host = (ctypes.c_ubyte * _BYTES)()
    host[_SOURCE : _SOURCE + len(_ROW)] = list(_ROW)
    with device.current(), _outside_of_captures(device), _stream(device) as stream:
        memory = device.malloc(_BYTES)
        try:
            device.upload(memory, ctypes.addressof(host), _BYTES, stream)

            def pack(target: int) -> None:
                given = {"from": memory + _SOURCE, "to": memory + target, "seqlen": 1, "columns": 8}
                values = [given.get(name, 0) for name in packed.names]
                packed.pack_into(kernargs.block, 0, *values)

            pack(_TARGET)
            device.launch(function, (1, 1, 1), kernel.workgroup, kernargs, stream)
            pack(_DECOY)
            device.download(ctypes.addressof(host), memory, _BYTES, stream)
            device.synchronize(stream)
        finally:
            device.free(memory)
    if bytes(host[_DECOY : _DECOY + len(_ROW)]) == _ROW:
        return Verdict.READS_LATE
    return (
        Verdict.WORKS
        if bytes(host[_TARGET : _TARGET + len(_ROW)]) == _ROW
        else (Verdict.WRITES_NOTHING)
    )


@contextmanager
def _stream(device: Runtime) -> Iterator[int]:
    hip = device.hip
    made = device.check("hipStreamCreateWithFlags", hip.hipStreamCreateWithFlags(_NON_BLOCKING))
    try:
        yield int(made)
    finally:
        device.check("hipStreamDestroy", hip.hipStreamDestroy(made))


@contextmanager
def _outside_of_captures(device: Runtime) -> Iterator[None]:
    """A block whose allocations and waits do not break a graph that other code captures."""
    # Not through hip-python, which cannot pass a mode.
    exchange = ctypes.CDLL(device.choice.library).hipThreadExchangeStreamCaptureMode
    mode = ctypes.c_int(device.hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed)
    exchange(ctypes.byref(mode))  # now the previous mode
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))
