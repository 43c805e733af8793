"""v_cvt_scalef32_*: what each computes, by its mnemonic.

The values of codes are those of ml_dtypes; every conversion is a search among them, or one
rounding of a fraction. The ISA manual (CDNA4, 7.3 and 12.11) has the order of elements, the seeds
and the selects; HIP's host functions how seeds add, and what NaN and infinity become.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np

from tests.support.isa import float_oracle as fo
from tests.support.isa.float_oracle import BF16, F16, F32, NEAREST, Fmt, Mode
from tests.support.isa.table_gfx950 import prng

WIDE = {"f32": F32, "f16": F16, "bf16": BF16}
NAN_SCALE = 255


@dataclass(frozen=True)
class Narrow:
    """A format of at most 8 bits; `greatest` is its largest finite code."""

    bits: int
    man: int
    bias: int
    greatest: int
    infinity: int
    nan: int
    dtype: type

    @functools.cached_property
    def values(self) -> tuple[Fraction, ...]:
        """Of the finite codes without a sign, ascending, and of one that follows them."""
        codes = np.arange(self.greatest + 1, dtype=np.uint8)
        values = [Fraction(float(x)) for x in codes.view(self.dtype).astype(np.float32)]
        return (*values, 2 * values[-1] - values[-2])


NARROW = {
    "fp8": Narrow(8, 3, 7, 0x7E, 0x7F, 0x7F, ml_dtypes.float8_e4m3fn),
    "bf8": Narrow(8, 2, 15, 0x7B, 0x7C, 0x7E, ml_dtypes.float8_e5m2),
    "fp6": Narrow(6, 3, 1, 0x1F, 0x1F, 0x1F, ml_dtypes.float6_e2m3fn),
    "bf6": Narrow(6, 2, 3, 0x1F, 0x1F, 0x1F, ml_dtypes.float6_e3m2fn),
    "fp4": Narrow(4, 1, 1, 7, 7, 7, ml_dtypes.float4_e2m1fn),
}


def nearest(values: Sequence[Fraction], x: Fraction) -> int:
    """Code of the nearest value, the even one of two; x is not negative."""
    if x >= values[-1]:
        return len(values) - 1
    above = bisect.bisect_right(values, x)
    below = above - 1
    low, high = x - values[below], values[above] - x
    return below if low < high or (low == high and below % 2 == 0) else above


def add_noise(to: Narrow, source: Fmt, x: Fraction, seed: int) -> int:
    """Stochastic rounding: the source's bits behind those that are kept, and as many of the seed's
    leading ones, carry."""
    exponent = max(fo.floor_log2(x), 1 - to.bias)
    dropped = source.man - to.man
    bits = int(x / fo.power(exponent - source.man)) + (seed >> (32 - dropped))
    return (bits >> dropped) + (exponent + to.bias - 1 << to.man)


def narrow(m: Mode, to: Narrow, source: Fmt, x: int, scale: int, seed: int | None) -> int:
    sign = 1 << (to.bits - 1) if source.negative(x) else 0
    if scale == NAN_SCALE or source.is_nan(x):
        return sign | to.nan
    beyond = to.greatest if m.fp16_ovfl else to.infinity
    if source.is_inf(x):
        return sign | beyond
    if source is F32:
        x = fo.flush_in(F32, m, x)
    value = abs(source.value(x)) / fo.power(scale - 127)
    if value == 0:
        return sign
    if value >= to.values[-1]:
        return sign | beyond
    code = nearest(to.values, value) if seed is None else add_noise(to, source, value, seed)
    return sign | (beyond if code > to.greatest else code)


def widen(m: Mode, to: Fmt, source: Narrow, code: int, scale: int) -> int:
    sign = to.sign if code >> (source.bits - 1) else 0
    code &= (1 << (source.bits - 1)) - 1
    infinite = source.greatest < code == source.infinity != source.nan
    if scale == NAN_SCALE or (code > source.greatest and not infinite):
        return sign | to.inf | to.quiet
    if infinite:
        return sign | to.inf
    value = source.values[code] * fo.power(scale - 127)
    if value == 0:
        return sign
    bits = fo.encode(to, value, NEAREST, overflow_to_max=to is not F32 and m.fp16_ovfl)
    return sign | (fo.flush_out(F32, m, bits) if to is F32 else bits)


_NAME = re.compile(r"v_cvt_scalef32_(sr_)?(pk_|pk32_|2xpk16_)?([a-z]+\d+)_([a-z]+\d+)$")


@dataclass(frozen=True)
class Conversion:
    """What a mnemonic says.

    Attributes
    ----------
    to, source : str
        Formats.
    count : int
        Elements.
    stochastic : bool
    """

    to: str
    source: str
    count: int
    stochastic: bool

    @classmethod
    def named(cls, name: str) -> Conversion:
        match = _NAME.match(name)
        assert match, name
        count = {None: 1, "pk_": 2, "pk32_": 32, "2xpk16_": 32}[match[2]]
        return cls(match[3], match[4], count, bool(match[1]))

    @property
    def two_sources(self) -> bool:
        """Elements come from the first and the second source in turn."""
        return self.source == "f32" and self.count > 1 and not self.stochastic

    @property
    def operands(self) -> int:
        return 3 if self.two_sources or self.stochastic else 2

    @staticmethod
    def width(name: str) -> int:
        return WIDE[name].width if name in WIDE else NARROW[name].bits

    @property
    def source_bits(self) -> int:
        """Of the elements in one source."""
        return self.width(self.source) * self.count // (2 if self.two_sources else 1)

    @property
    def result_bits(self) -> int:
        return self.width(self.to) * self.count

    @property
    def selects(self) -> tuple[int, int]:
        """How many places in a dword the source and the result may have."""
        source = 32 // self.source_bits if self.source in NARROW and self.source_bits < 32 else 1
        return source, max(1, 32 // self.result_bits)

    def element(self, m: Mode, x: int, scale: int, seed: int) -> int:
        if self.to in WIDE:
            return widen(m, WIDE[self.to], NARROW[self.source], x, scale)
        noise = seed if self.stochastic else None
        return narrow(m, NARROW[self.to], WIDE[self.source], x, scale, noise)

    def lane(
        self,
        m: Mode,
        sources: Sequence[int],
        scale: int,
        seed: int,
        old: int,
        places: Sequence[int],
    ) -> int:
        """The destination of one lane. Sources and destination are integers of all their bits;
        `places` says where in its dword a narrow source and result lie."""
        width, result_width = self.width(self.source), self.width(self.to)
        begin = places[1] * self.result_bits
        packed = 0
        for i in range(self.count):
            word = sources[i % 2] >> i // 2 * width if self.two_sources else sources[0] >> i * width
            x = word >> places[0] * self.source_bits & (1 << width) - 1
            packed |= self.element(m, x, scale, seed) << i * result_width
            seed = prng(seed)
        if self.result_bits >= 32:
            return packed
        field = (1 << self.result_bits) - 1
        return old & ~(field << begin) | packed << begin
