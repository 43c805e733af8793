"""The HSA runtime's ABI of the virtual device, through ctypes."""

from __future__ import annotations

import ctypes
import itertools
import struct
from typing import Any

from tests.support.vdev_library import open_library

U32, U64, POINTER = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p
SUCCESS, INVALID_ARGUMENT, NOT_INITIALIZED = 0, 0x1001, 0x100B
INVALID_PACKET_FORMAT, MEMORY_FAULT, INVALID_MEMORY_POOL = 0x1009, 43, 40
FOREVER = (1 << 64) - 1
EQUAL, LESS = 0, 2
DISPATCH, BARRIER_AND, BARRIER_OR, VENDOR = 2, 3, 5, 0
KERNEL_OBJECT = 22
PACKETS = 64

ON_AGENT = ctypes.CFUNCTYPE(U32, U64, POINTER)
ON_ERROR = ctypes.CFUNCTYPE(None, U32, POINTER, POINTER)
ON_SIGNAL = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int64, POINTER)


class Hsa:
    """One library, which counts as initialised while this is in use."""

    def __init__(self) -> None:
        self.lib = open_library(
            hsa_agent_get_info=(U32, [U64, U32, POINTER]),
            hsa_system_get_info=(U32, [U32, POINTER]),
            hsa_iterate_agents=(U32, [ON_AGENT, POINTER]),
            hsa_amd_agent_iterate_memory_pools=(U32, [U64, ON_AGENT, POINTER]),
            hsa_amd_memory_pool_get_info=(U32, [U64, U32, POINTER]),
            hsa_amd_memory_pool_allocate=(U32, [U64, ctypes.c_size_t, U32, POINTER]),
            hsa_amd_memory_pool_free=(U32, [POINTER]),
            hsa_amd_memory_async_copy=(
                U32,
                [POINTER, U64, POINTER, U64, ctypes.c_size_t, U32, POINTER, U64],
            ),
            hsa_signal_create=(U32, [ctypes.c_int64, U32, POINTER, POINTER]),
            hsa_signal_destroy=(U32, [U64]),
            hsa_signal_load_relaxed=(ctypes.c_int64, [U64]),
            hsa_signal_store_relaxed=(None, [U64, ctypes.c_int64]),
            hsa_signal_wait_scacquire=(
                ctypes.c_int64,
                [U64, U32, ctypes.c_int64, U64, U32],
            ),
            hsa_amd_signal_async_handler=(
                U32,
                [U64, U32, ctypes.c_int64, ON_SIGNAL, POINTER],
            ),
            hsa_queue_create=(U32, [U64, U32, U32, ON_ERROR, POINTER, U32, U32, POINTER]),
            hsa_queue_destroy=(U32, [POINTER]),
            hsa_queue_add_write_index_screlease=(U64, [POINTER, U64]),
            hsa_queue_load_read_index_relaxed=(U64, [POINTER]),
            hsa_code_object_reader_create_from_memory=(
                U32,
                [ctypes.c_char_p, ctypes.c_size_t, POINTER],
            ),
            hsa_executable_create_alt=(U32, [U32, U32, ctypes.c_char_p, POINTER]),
            hsa_executable_load_agent_code_object=(
                U32,
                [U64, U64, U64, ctypes.c_char_p, POINTER],
            ),
            hsa_executable_freeze=(U32, [U64, ctypes.c_char_p]),
            hsa_executable_get_symbol_by_name=(U32, [U64, ctypes.c_char_p, POINTER, POINTER]),
            hsa_executable_symbol_get_info=(U32, [U64, U32, POINTER]),
            hsa_executable_destroy=(U32, [U64]),
        )

    def made(self, call: str, *arguments: Any) -> int:
        """What a call writes to its last argument, 64 bits."""
        out = U64()
        status = getattr(self.lib, call)(*arguments, ctypes.byref(out))
        assert status == SUCCESS, (call, hex(status))
        return out.value

    def visited(self, call: str, *arguments: Any) -> list[int]:
        """Handles that an iteration gives."""
        found: list[int] = []

        def visit(handle: int, _data: int | None) -> int:
            found.append(handle)
            return SUCCESS

        assert getattr(self.lib, call)(*arguments, ON_AGENT(visit), None) == SUCCESS
        return found

    def text(self, agent: int, attribute: int) -> str:
        """An attribute of an agent that is text."""
        out = ctypes.create_string_buffer(128)
        assert self.lib.hsa_agent_get_info(agent, attribute, out) == SUCCESS
        return out.value.decode()

    def number(self, agent: int, attribute: int) -> int:
        """An attribute of an agent that is a number of 32 bits."""
        out = U32()
        assert self.lib.hsa_agent_get_info(agent, attribute, ctypes.byref(out)) == SUCCESS
        return out.value

    @property
    def gpu(self) -> int:
        return self.visited("hsa_iterate_agents")[1]

    def pool(self, agent: int, flags: int) -> int:
        """The pool of an agent with these flags."""
        for pool in self.visited("hsa_amd_agent_iterate_memory_pools", agent):
            out = U32()
            self.lib.hsa_amd_memory_pool_get_info(pool, 1, ctypes.byref(out))
            if out.value == flags:
                return pool
        raise LookupError(flags)

    def signal(self, value: int = 1) -> int:
        return self.made("hsa_signal_create", value, 0, None)

    def wait(self, signal: int, seconds: float = 20) -> int:
        """Until the signal is 0; its value then."""
        timeout = int(seconds * 1e9)
        return int(self.lib.hsa_signal_wait_scacquire(signal, EQUAL, 0, timeout, 0))

    def kernel(
        self, image: bytes, name: bytes = b"k.kd", gpu: int | None = None
    ) -> tuple[int, int]:
        """(executable, kernel object) of an image."""
        reader = self.made("hsa_code_object_reader_create_from_memory", image, len(image))
        executable = self.made("hsa_executable_create_alt", 1, 0, None)
        agent = self.gpu if gpu is None else gpu
        self.made("hsa_executable_load_agent_code_object", executable, agent, reader, None)
        assert self.lib.hsa_executable_freeze(executable, None) == SUCCESS
        symbol = self.made("hsa_executable_get_symbol_by_name", executable, name, None)
        return executable, self.made("hsa_executable_symbol_get_info", symbol, KERNEL_OBJECT)


class Queue:
    """A queue, and what its error handler was told."""

    def __init__(self, hsa: Hsa, gpu: int | None = None) -> None:
        self.hsa = hsa
        self.errors: list[int] = []
        self._on_error = ON_ERROR(lambda status, _queue, _data: self.errors.append(status))
        unused = 0xFFFFFFFF
        self.handle = hsa.made(
            *("hsa_queue_create", hsa.gpu if gpu is None else gpu, PACKETS, 0),
            *(self._on_error, None, unused, unused),
        )
        fields = struct.unpack("<IIQQIIQ", ctypes.string_at(self.handle, 40))
        _, _, self.base, self.doorbell, self.size, _, self.id = fields

    def submit(self, packet: bytes) -> None:
        """Write a packet, its header last, and ring."""
        index = self.hsa.lib.hsa_queue_add_write_index_screlease(self.handle, 1)
        at = self.base + index % self.size * 64
        ctypes.memmove(at + 2, packet[2:], 62)
        ctypes.c_uint16.from_address(at).value = struct.unpack_from("<H", packet)[0]
        self.hsa.lib.hsa_signal_store_relaxed(self.doorbell, index)

    def destroy(self) -> None:
        assert self.hsa.lib.hsa_queue_destroy(self.handle) == SUCCESS


def dispatch(
    kernel_object: int,
    kernarg: int,
    signal: int = 0,
    lanes: int | tuple[int, ...] = 64,
    grid: int | tuple[int, ...] | None = None,
    group_bytes: int = 0,
) -> bytes:
    """A packet; its workgroups have `lanes`, which is also what the grid has by default."""

    def sizes(size: int | tuple[int, ...]) -> tuple[int, ...]:
        axes = (size,) if isinstance(size, int) else size
        return (*axes, 1, 1)[:3]

    dimensions = 1 if isinstance(lanes, int) else len(lanes)
    return struct.pack(
        "<HHHHHHIIIIIQQQQ",
        *(DISPATCH | 1 << 8, dimensions, *sizes(lanes), 0, *sizes(lanes if grid is None else grid)),
        *(0, group_bytes, kernel_object, kernarg, 0, signal),
    )


def barrier(kind: int, signals: list[int], completion: int) -> bytes:
    """A barrier packet; its signals may be fewer than five."""
    padded = list(itertools.islice(itertools.chain(signals, itertools.repeat(0)), 5))
    return struct.pack("<HHI5QQQ", kind, 0, 0, *padded, 0, completion)
