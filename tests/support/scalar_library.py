"""Calls the scalar arithmetic of the virtual device on NumPy arrays."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

NEAREST, UP, DOWN, ZERO = range(4)
ROUNDINGS = (NEAREST, UP, DOWN, ZERO)
DENORM_IN, DENORM_OUT = 1, 2  # "keep" bits of a MODE denormal field
IEEE, DX10_CLAMP, FP16_OVFL = 1 << 9, 1 << 8, 1 << 23
HIP_MODE = 0xF0 | IEEE | DX10_CLAMP  # what compilers set
FLUSH_MODE = 0xC0  # f32 denormals flushed, IEEE=0: what hand-written attention kernels set


def mode(rounding: int = NEAREST, denorm: int = 3, flags: int = IEEE | DX10_CLAMP) -> int:
    """A MODE register with the same rounding and denormal field for f32 and for f16/f64."""
    return rounding | rounding << 2 | denorm << 4 | denorm << 6 | flags


def mxcsr(rounding: int = NEAREST, denorm: int = 3) -> int:
    """The host control word for a rounding and a MODE denormal field."""
    round_bits = {NEAREST: 0, UP: 0x4000, DOWN: 0x2000, ZERO: 0x6000}[rounding]
    daz = 0 if denorm & DENORM_IN else 0x40
    ftz = 0 if denorm & DENORM_OUT else 0x8000
    return 0x1F80 | round_bits | daz | ftz


ALL_MXCSR = [mxcsr(r, d) for r in ROUNDINGS for d in range(4)]


class ScalarLibrary:
    """The scalar operations of one build of the virtual device."""

    def __init__(self, lib: ctypes.CDLL) -> None:
        self._numerics = lib.vdev_test_numerics
        self._unary = lib.vdev_test_unary_f32

    def run(
        self,
        name: str,
        a: npt.ArrayLike,
        b: npt.ArrayLike | None = None,
        c: npt.ArrayLike | None = None,
        *,
        mode: int = HIP_MODE,
        mxcsr: int = 0x1F80,
    ) -> U64:
        """Apply an operation to bit patterns, broadcasting a, b and c."""
        operands = [np.asarray(x).astype(np.uint64) for x in (a, b, c) if x is not None]
        arrays = [np.ascontiguousarray(x) for x in np.broadcast_arrays(*operands)]
        out = np.empty(arrays[0].shape, np.uint64)
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in arrays]
        pointers += [ctypes.c_void_p()] * (3 - len(pointers))
        status = self._numerics(
            name.encode(),
            ctypes.c_uint32(mode),
            ctypes.c_uint32(mxcsr),
            *pointers,
            out.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(out.size),
        )
        assert status == 0, f"no operation {name!r}"
        return out

    def run32(
        self, name: str, *operands: npt.ArrayLike, mode: int = HIP_MODE, mxcsr: int = 0x1F80
    ) -> U32:
        """As `run`, for results of at most 32 bits."""
        return self.run(name, *operands, mode=mode, mxcsr=mxcsr).astype(np.uint32)

    def lanes(self, name: str, x: U32, *, mxcsr: int = 0x1F80, in_place: bool = False) -> U32:
        """A 64-lane function on any number of values."""
        padded = np.zeros(-(-x.size // 64) * 64, np.uint32)
        padded[: x.size] = x
        out = padded if in_place else np.empty_like(padded)
        status = self._unary(
            name.encode(),
            ctypes.c_uint32(mxcsr),
            padded.ctypes.data_as(ctypes.c_void_p),
            out.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(padded.size),
        )
        assert status == 0, f"no lanes function {name!r}"
        return out[: x.size]


def all_exponents_f32(rng: np.random.Generator, per_exponent: int) -> U32:
    """Random significands and the extreme ones at every f32 sign and exponent."""
    top = np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23)
    low = rng.integers(0, 1 << 23, (512, per_exponent), dtype=np.uint32)
    low[:, :4] = [0, 1, (1 << 23) - 1, 1 << 22]
    return (top | low).ravel()
