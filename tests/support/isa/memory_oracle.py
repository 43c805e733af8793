"""Independent models of memory data and atomics, shared by the tests of DS, FLAT and MUBUF.

Everything works on Python integers and NumPy scalars, one lane at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from tests.support.isa.machine import U32, Machine

MASK32, MASK64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def vector(first: int, dwords: int, bank: str = "v") -> str:
    return f"{bank}{first}" if dwords == 1 else f"{bank}[{first}:{first + dwords - 1}]"


def check_registers(m: Machine, before: U32, expected: dict[tuple[int, int], int]) -> None:
    """Every (register, lane) of `expected` has its value, every other one is as before."""
    after = before.copy()
    for (register, lane), value in expected.items():
        after[register, lane] = value
    np.testing.assert_array_equal(m.v, after)


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass(frozen=True)
class LoadForm:
    """How a load turns memory into registers.

    Attributes
    ----------
    size : int
        Bytes taken from memory.
    sign : bool
        Whether a short datum is sign-extended.
    half : int or None
        Register half that a D16 form writes; the other becomes 0 (MI300 runs with SRAM ECC).
    """

    size: int
    sign: bool = False
    half: int | None = None

    @property
    def dwords(self) -> int:
        return max(1, self.size // 4)

    def registers(self, data: bytes) -> list[int]:
        assert len(data) == self.size
        if self.size >= 4:
            return [int.from_bytes(data[i : i + 4], "little") for i in range(0, self.size, 4)]
        value = int.from_bytes(data, "little", signed=self.sign)
        if self.half is None:
            return [value & MASK32]
        return [(value & 0xFFFF) << 16 * self.half]


LOADS = {
    "ubyte": LoadForm(1),
    "sbyte": LoadForm(1, sign=True),
    "ushort": LoadForm(2),
    "sshort": LoadForm(2, sign=True),
    "dword": LoadForm(4),
    "dwordx2": LoadForm(8),
    "dwordx3": LoadForm(12),
    "dwordx4": LoadForm(16),
    "ubyte_d16": LoadForm(1, half=0),
    "ubyte_d16_hi": LoadForm(1, half=1),
    "sbyte_d16": LoadForm(1, sign=True, half=0),
    "sbyte_d16_hi": LoadForm(1, sign=True, half=1),
    "short_d16": LoadForm(2, half=0),
    "short_d16_hi": LoadForm(2, half=1),
}

# Name: bytes stored, bits that the register is shifted right by.
STORES = {
    "byte": (1, 0),
    "byte_d16_hi": (1, 16),
    "short": (2, 0),
    "short_d16_hi": (2, 16),
    "dword": (4, 0),
    "dwordx2": (8, 0),
    "dwordx3": (12, 0),
    "dwordx4": (16, 0),
}


def stored_bytes(registers: list[int], size: int, shift: int) -> bytes:
    if size >= 4:
        return b"".join(int(r).to_bytes(4, "little") for r in registers)
    return (int(registers[0]) >> shift).to_bytes(4, "little")[:size]


# ---- Atomics: (memory, data) -> memory, on unsigned integers of `bits` bits.

Update = Callable[[int, int], int]


def integer_updates(bits: int) -> dict[str, Update]:
    mask = (1 << bits) - 1

    def as_signed(value: int) -> int:
        return signed(value, bits)

    return {
        "add": lambda m, d: (m + d) & mask,
        "sub": lambda m, d: (m - d) & mask,
        "rsub": lambda m, d: (d - m) & mask,
        "inc": lambda m, d: 0 if m >= d else m + 1,
        "dec": lambda m, d: d if m == 0 or m > d else m - 1,
        "smin": lambda m, d: min(m, d, key=as_signed),
        "smax": lambda m, d: max(m, d, key=as_signed),
        "umin": min,
        "umax": max,
        "and": lambda m, d: m & d,
        "or": lambda m, d: m | d,
        "xor": lambda m, d: m ^ d,
        "swap": lambda m, d: d,
    }


@dataclass(frozen=True)
class FloatKind:
    """A float format as unsigned bit patterns."""

    bits: int
    mantissa: int
    dtype: type

    @property
    def infinity(self) -> int:
        return ((1 << (self.bits - 1)) - 1) >> self.mantissa << self.mantissa

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    def magnitude(self, x: int) -> int:
        return x & ~self.sign

    def is_nan(self, x: int) -> bool:
        return self.magnitude(x) > self.infinity

    def quiet(self, x: int) -> int:
        return x | 1 << (self.mantissa - 1)

    def is_signalling(self, x: int) -> bool:
        return self.is_nan(x) and self.quiet(x) != x

    def flush(self, x: int, keep: bool) -> int:
        return x if keep or self.magnitude(x) >> self.mantissa else x & self.sign

    def value(self, x: int) -> Any:
        raw = np.array([x], f"u{self.bits // 8}")
        return raw.view(self.dtype)[0]

    def pattern(self, value: Any) -> int:
        return int(np.array([value], self.dtype).view(f"u{self.bits // 8}")[0])

    def add(self, memory: int, data: int, keep_in: bool = True, keep_out: bool = True) -> int:
        a, b = self.flush(memory, keep_in), self.flush(data, keep_in)
        for x in (a, b):
            if self.is_nan(x):
                return self.quiet(x)
        with np.errstate(all="ignore"):
            total = self.pattern(self.value(a) + self.value(b))
        if self.is_nan(total):
            return self.sign | self.quiet(self.infinity)
        return self.flush(total, keep_out)

    def select(self, memory: int, data: int, largest: bool, keep_in: bool = True) -> int:
        for x in (memory, data):
            if self.is_signalling(x):
                return self.quiet(x)
        if self.is_nan(data):
            return memory
        if self.is_nan(memory):
            return data
        a, b = self.flush(memory, keep_in), self.flush(data, keep_in)
        # Sign and magnitude order, so that -0 is below +0.
        key = [(-self.magnitude(x) - 1) if x & self.sign else self.magnitude(x) for x in (a, b)]
        return data if (key[1] > key[0] if largest else key[1] < key[0]) else memory

    def compare_store(self, memory: int, compare: int, data: int, keep_in: bool = True) -> int:
        a, b = self.flush(memory, keep_in), self.flush(compare, keep_in)
        same = not self.is_nan(a) and not self.is_nan(b) and self.value(a) == self.value(b)
        return self.flush(data, keep_in) if same else memory

    def samples(self, rng: np.random.Generator, count: int) -> list[int]:
        """Patterns of every class: zeros, denormals, infinities, both kinds of NaN, numbers."""
        one = self.pattern(np.ones(1, self.dtype)[0])
        special = [0, 1, self.infinity, self.infinity - 1, one, one + 1, self.infinity + 1]
        special += [self.quiet(self.infinity) | 5, 1 << self.mantissa, (1 << self.mantissa) - 1]
        special += [x | self.sign for x in special]
        result = []
        for _ in range(count):
            kind = rng.integers(0, 4)
            if kind == 0:
                result.append(int(special[rng.integers(0, len(special))]))
            elif kind == 1:  # near 1, so that sums round and cancel
                delta = int(rng.integers(-(4 << self.mantissa), 4 << self.mantissa))
                result.append((one + delta) | (self.sign if rng.integers(0, 2) else 0))
            elif kind == 2:  # denormal or nearly so
                result.append(
                    int(rng.integers(0, 4 << self.mantissa))
                    | (self.sign if rng.integers(0, 2) else 0)
                )
            else:
                result.append(
                    int(rng.integers(0, 1 << self.bits, dtype=np.uint64))
                    if self.bits < 64
                    else int(rng.integers(0, 1 << 64, dtype=np.uint64))
                )
        return result


F16 = FloatKind(16, 10, np.float16)
BF16 = FloatKind(16, 7, ml_dtypes.bfloat16)
F32 = FloatKind(32, 23, np.float32)
F64 = FloatKind(64, 52, np.float64)


def packed(kind: FloatKind, rng: np.random.Generator, count: int) -> list[int]:
    low, high = kind.samples(rng, count), kind.samples(rng, count)
    return [a | b << 16 for a, b in zip(low, high, strict=True)]


def packed_add(kind: FloatKind, memory: int, data: int, keep: bool = True) -> int:
    low = kind.add(memory & 0xFFFF, data & 0xFFFF, keep, keep)
    return low | kind.add(memory >> 16, data >> 16, keep, keep) << 16
