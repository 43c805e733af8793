"""Memory of a device: allocated, copied, cleared. Addresses are ints."""

from __future__ import annotations

from typing import Any

from amdattn.device.runtime.calls import HipCalls
from amdattn.errors import HipError


class MemoryCalls(HipCalls):
    """The part of a runtime that allocates and copies."""

    def __init__(self, *bound: Any) -> None:
        super().__init__(*bound)
        self._copy_kinds = self.hip.hipMemcpyKind

    def malloc(self, nbytes: int) -> int:
        """Allocate device memory; the address is 256-byte aligned."""
        with self.current(), self._unaffected():
            return int(self.check("hipMalloc", self.hip.hipMalloc(max(nbytes, 1))))

    def free(self, address: int) -> None:
        """Free memory of `malloc`."""
        with self._unaffected():
            self.check("hipFree", self.hip.hipFree(address))

    def upload(self, address: int, host: int, nbytes: int, stream: int = 0) -> None:
        """Copy host memory to the device, ordered on `stream`."""
        self._copy(address, host, nbytes, self._copy_kinds.hipMemcpyHostToDevice, stream)

    def download(self, host: int, address: int, nbytes: int, stream: int = 0) -> None:
        """Copy device memory to the host, ordered on `stream`; synchronize before reading it."""
        self._copy(host, address, nbytes, self._copy_kinds.hipMemcpyDeviceToHost, stream)

    def copy_on_device(self, to: int, source: int, nbytes: int, stream: int = 0) -> None:
        """Copy between two places of device memory, ordered on `stream`."""
        self._copy(to, source, nbytes, self._copy_kinds.hipMemcpyDeviceToDevice, stream)

    def _copy(self, to: int, source: int, nbytes: int, kind: Any, stream: int) -> None:
        with self.current(stream):
            self.check("hipMemcpyAsync", self.hip.hipMemcpyAsync(to, source, nbytes, kind, stream))

    def clear(self, address: int, nbytes: int, stream: int = 0) -> None:
        """Set device memory to 0, ordered on `stream`."""
        with self.current(stream):
            self.check("hipMemsetAsync", self.hip.hipMemsetAsync(address, 0, nbytes, stream))

    def copy_rows(
        self,
        to: int,
        to_pitch: int,
        source: int,
        pitch: int,
        width: int,
        rows: int,
        stream: int = 0,
    ) -> None:
        """Copy `rows` rows of `width` bytes at given distances, on the device."""
        kind = self._copy_kinds.hipMemcpyDeviceToDevice
        with self.current(stream):
            self.check(
                "hipMemcpy2DAsync",
                self.hip.hipMemcpy2DAsync(to, to_pitch, source, pitch, width, rows, kind, stream),
            )

    def owns(self, address: int) -> bool:
        """True if `address` is memory of this device, of this HIP runtime."""
        return self.ordinal_of(address) == self.ordinal

    def ordinal_of(self, address: int) -> int | None:
        """The device whose memory an address is in; None if this runtime knows none."""
        try:
            found = self._struct("hipPointerGetAttributes", "hipPointerAttribute_t", address)
        except HipError:
            return None
        # Host memory that is unknown to the runtime has no address there, or a device below 0.
        is_known = found.devicePointer is not None and found.device >= 0
        return int(found.device) if is_known else None
