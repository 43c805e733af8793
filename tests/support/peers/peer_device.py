"""Launches foreign code objects on the bound device, through hip-python as a user would."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from amdattn import virtual
from amdattn.device import runtime

WAVE_LANES = 64
# The default order of waves, then two random ones with other register contents.
SEEDS = (0, 11, 4242)


class Kernel:
    """One kernel of a code object that is loaded for the life of the process."""

    def __init__(self, image: bytes, symbol: str) -> None:
        self._device = runtime.get()
        check, hip = self._device.check, self._device.hip
        self._image = image  # the runtime keeps pointing at it
        self._module = check("hipModuleLoadData", hip.hipModuleLoadData(image))
        self._function = check(
            "hipModuleGetFunction", hip.hipModuleGetFunction(self._module, symbol.encode())
        )

    def launch(
        self, grid: tuple[int, int, int], lanes: int, kernarg: bytes, dynamic_lds_bytes: int = 0
    ) -> None:
        """Launch `grid` workgroups of `lanes` with the packed arguments, and wait."""
        block = ctypes.create_string_buffer(kernarg, len(kernarg))
        size = ctypes.c_size_t(len(kernarg))
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 3)
        self._device.check(
            "hipModuleLaunchKernel",
            self._device.hip.hipModuleLaunchKernel(
                self._function,
                *grid,
                *(lanes, 1, 1),
                dynamic_lds_bytes,
                0,
                None,
                ctypes.addressof(extra),
            ),
        )
        runtime.synchronize()


class Buffers(contextlib.ExitStack):
    """Device memory for one test, freed at its end."""

    def put(self, array: np.ndarray[Any, Any]) -> int:
        """Address of a copy of `array` in an allocation of exactly its size."""
        array = np.ascontiguousarray(array)
        device = runtime.get()
        address = device.malloc(array.nbytes)
        self.callback(device.free, address)
        device.upload(address, array.ctypes.data, array.nbytes)
        runtime.synchronize()
        return address

    def unwritten(self, shape: tuple[int, ...], dtype: Any) -> int:
        """Address of an array filled with NaN (all bits set)."""
        return self.put(np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, 0xFF, np.uint8))


def read(address: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Copy an array from the device."""
    array = np.empty(shape, dtype)
    runtime.get().download(array.ctypes.data, address, array.nbytes)
    runtime.synchronize()
    return array


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run what is inside with another order of waves and other contents of unset registers."""
    virtual.set_option("seed", seed)
    try:
        yield
    finally:
        virtual.set_option("seed", 0)


def attention(
    q: np.ndarray[Any, Any], k: np.ndarray[Any, Any], v: np.ndarray[Any, Any], causal: bool
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """float64 attention of (seqlen, num_heads, head_dim) arrays: out, and lse (num_heads, seqlen).

    The causal mask is aligned at the bottom right; a row that sees no key has out 0 and lse -inf.
    """
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.float64).transpose(1, 0, 2) for x in (q, k, v))
    k, v = (x.repeat(group, axis=0) for x in (k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    if causal:
        rows, columns = scores.shape[1:]
        hidden = ~np.tri(rows, columns, columns - rows, dtype=bool)
        scores[:, hidden] = -np.inf
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = top + np.log(total)
    return (weights / np.where(total == 0, 1, total) @ v).transpose(1, 0, 2), lse[..., 0]


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Normally distributed bfloat16."""
    return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)
