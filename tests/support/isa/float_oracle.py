"""Exact model of the VALU's float rules on bit patterns: rationals, one rounding, MODE.

Independent of the C++: every finite value is a `fractions.Fraction`, every rounding is done by
`encode`. Results are ints that hold the bits of the format.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

NEAREST, UP, DOWN, ZERO = range(4)


@dataclass(frozen=True)
class Fmt:
    """A binary float format of `width` bits with `man` mantissa bits."""

    width: int
    man: int

    @functools.cached_property
    def bias(self) -> int:
        return (1 << (self.width - self.man - 2)) - 1

    @functools.cached_property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @functools.cached_property
    def inf(self) -> int:
        return ((1 << (self.width - self.man - 1)) - 1) << self.man

    @functools.cached_property
    def quiet(self) -> int:
        return 1 << (self.man - 1)

    @functools.cached_property
    def one(self) -> int:
        return self.bias << self.man

    @property
    def default_nan(self) -> int:
        """What an invalid operation returns: negative, quiet (manual's V_SQRT_F32(-inf))."""
        return self.sign | self.inf | self.quiet

    def is_nan(self, x: int) -> bool:
        return x & (self.sign - 1) > self.inf

    def is_snan(self, x: int) -> bool:
        return self.is_nan(x) and not x & self.quiet

    def is_inf(self, x: int) -> bool:
        return x & (self.sign - 1) == self.inf

    def is_zero(self, x: int) -> bool:
        return x & (self.sign - 1) == 0

    def is_denorm(self, x: int) -> bool:
        return 0 < x & (self.sign - 1) < 1 << self.man

    def negative(self, x: int) -> bool:
        return bool(x & self.sign)

    def exponent_field(self, x: int) -> int:
        return (x & self.inf) >> self.man

    def value(self, x: int) -> Fraction:
        """Value of a finite number."""
        field = self.exponent_field(x)
        man = x & ((1 << self.man) - 1)
        if field:
            man |= 1 << self.man
        exponent = max(field, 1) - self.bias - self.man
        magnitude = Fraction(man << exponent) if exponent >= 0 else Fraction(man, 1 << -exponent)
        return -magnitude if x & self.sign else magnitude


F16, F32, F64 = Fmt(16, 10), Fmt(32, 23), Fmt(64, 52)
BF16 = Fmt(16, 7)


@dataclass(frozen=True)
class Mode:
    """The MODE register, by field."""

    bits: int

    def round(self, fmt: Fmt) -> int:
        return self.bits & 3 if fmt is F32 else self.bits >> 2 & 3

    def _denorm(self, fmt: Fmt) -> int:
        return self.bits >> 4 & 3 if fmt is F32 else self.bits >> 6 & 3

    def keeps_in(self, fmt: Fmt) -> bool:
        return bool(self._denorm(fmt) & 1)

    def keeps_out(self, fmt: Fmt) -> bool:
        return bool(self._denorm(fmt) & 2)

    @property
    def dx10_clamp(self) -> bool:
        return bool(self.bits >> 8 & 1)

    @property
    def ieee(self) -> bool:
        return bool(self.bits >> 9 & 1)

    @property
    def fp16_ovfl(self) -> bool:
        return bool(self.bits >> 23 & 1)


def power(exponent: int) -> Fraction:
    """2 to an integer."""
    return Fraction(2) ** exponent


def floor_log2(x: Fraction) -> int:
    """floor(log2(x)) of x > 0."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if x >= Fraction(2) ** e else e - 1


def round_integer(x: Fraction, how: int) -> int:
    """Round to an integer by one of MODE's four rules."""
    below = x.numerator // x.denominator
    rest = x - below
    if rest == 0 or how == DOWN:
        return below
    if how == UP:
        return below + 1
    if how == ZERO:
        return below if x >= 0 else below + 1
    if rest == Fraction(1, 2):
        return below + (below & 1)
    return below + (rest > Fraction(1, 2))


def encode(fmt: Fmt, x: Fraction, how: int, *, overflow_to_max: bool = False) -> int:
    """Round x != 0 to the format; denormal results are kept."""
    sign = fmt.sign if x < 0 else 0
    mag = abs(x)
    exponent = max(floor_log2(mag), 1 - fmt.bias)
    unit = Fraction(2) ** (exponent - fmt.man)
    if how in (UP, DOWN):
        how = UP if (how == UP) != bool(sign) else ZERO
    n = round_integer(mag / unit, how)
    if n >> (fmt.man + 1):
        n >>= 1
        exponent += 1
    if exponent > fmt.bias:
        infinite = how in (NEAREST, UP) and not overflow_to_max
        return sign | (fmt.inf if infinite else fmt.inf - 1)
    field = exponent + fmt.bias if n >> fmt.man else 0
    return sign | field << fmt.man | n & ((1 << fmt.man) - 1)


def flush(fmt: Fmt, x: int) -> int:
    """A denormal becomes a zero of its sign."""
    return x & fmt.sign if fmt.is_denorm(x) else x


def flush_in(fmt: Fmt, m: Mode, x: int) -> int:
    return x if m.keeps_in(fmt) else flush(fmt, x)


def flush_out(fmt: Fmt, m: Mode, x: int) -> int:
    return x if m.keeps_out(fmt) else flush(fmt, x)


def nan_of(fmt: Fmt, m: Mode, *sources: int) -> int:
    """The NaN of an arithmetic result: the first NaN source, quiet with IEEE, else the default."""
    for x in sources:
        if fmt.is_nan(x):
            return x | fmt.quiet if m.ieee else x
    return fmt.default_nan


def finish(fmt: Fmt, m: Mode, x: Fraction, zero_sign: int) -> int:
    """Round an exact result by MODE; `zero_sign` is the sign bit of an exact zero."""
    if x == 0:
        return zero_sign
    return flush_out(fmt, m, encode(fmt, x, m.round(fmt)))


def arithmetic(fmt: Fmt, m: Mode, x: Fraction, zero_sign: int) -> int:
    """`finish` of a sum, a product or an fma.

    Where denormal results are flushed, f32 and f64 have none to round to: what is below the least
    normal number when it is rounded to all bits of a significand is flushed, though the nearest
    denormal or normal number may be the least normal one. f16 is rounded to that first. What the
    hardware does in the half unit between the two is not public.
    """
    if x and fmt in (F32, F64) and not m.keeps_out(fmt):
        wider = Fmt(fmt.width + 4, fmt.man)  # of exponent: nothing is denormal in it
        if abs(wider.value(encode(wider, x, m.round(fmt)))) < power(1 - fmt.bias):
            return fmt.sign if x < 0 else 0
    return finish(fmt, m, x, zero_sign)


def fma(fmt: Fmt, m: Mode, a: int, b: int, c: int) -> int:
    """a * b + c with one rounding."""
    a, b, c = (flush_in(fmt, m, x) for x in (a, b, c))
    if any(fmt.is_nan(x) for x in (a, b, c)):
        return nan_of(fmt, m, a, b, c)
    product_sign = (a ^ b) & fmt.sign
    if fmt.is_inf(a) or fmt.is_inf(b):
        if fmt.is_zero(a) or fmt.is_zero(b):
            return fmt.default_nan
        if fmt.is_inf(c) and c & fmt.sign != product_sign:
            return fmt.default_nan
        return product_sign | fmt.inf
    if fmt.is_inf(c):
        return c
    product, addend = fmt.value(a) * fmt.value(b), fmt.value(c)
    if product == 0 and addend == 0 and product_sign == c & fmt.sign:
        zero = product_sign
    else:
        zero = fmt.sign if m.round(fmt) == DOWN else 0
    return arithmetic(fmt, m, product + addend, zero)


def mul(fmt: Fmt, m: Mode, a: int, b: int) -> int:
    a, b = flush_in(fmt, m, a), flush_in(fmt, m, b)
    if fmt.is_nan(a) or fmt.is_nan(b):
        return nan_of(fmt, m, a, b)
    sign = (a ^ b) & fmt.sign
    if fmt.is_inf(a) or fmt.is_inf(b):
        return fmt.default_nan if fmt.is_zero(a) or fmt.is_zero(b) else sign | fmt.inf
    return arithmetic(fmt, m, fmt.value(a) * fmt.value(b), sign)


def add(fmt: Fmt, m: Mode, a: int, b: int) -> int:
    return fma(fmt, m, a, fmt.one, b)


def sub(fmt: Fmt, m: Mode, a: int, b: int) -> int:
    """a - b; the NaN of b is passed on with its own sign."""
    if fmt.is_nan(b):
        return nan_of(fmt, m, a, b)
    return add(fmt, m, a, b ^ fmt.sign)


def _order(fmt: Fmt, x: int) -> int:
    """Key that orders non-NaN values, -0 below +0."""
    return -1 - (x & (fmt.sign - 1)) if x & fmt.sign else x


def _min_max(fmt: Fmt, m: Mode, a: int, b: int, *, largest: bool) -> int:
    if m.ieee:
        for x in (a, b):
            if fmt.is_snan(x):
                return x | fmt.quiet
    a, b = flush_in(fmt, m, a), flush_in(fmt, m, b)
    if fmt.is_nan(a):
        r = b
    elif fmt.is_nan(b):
        r = a
    else:
        r = (max if largest else min)((a, b), key=lambda x: _order(fmt, x))
    return flush_out(fmt, m, r)


def fmax(fmt: Fmt, m: Mode, a: int, b: int) -> int:
    return _min_max(fmt, m, a, b, largest=True)


def fmin(fmt: Fmt, m: Mode, a: int, b: int) -> int:
    return _min_max(fmt, m, a, b, largest=False)


def fmax3(fmt: Fmt, m: Mode, a: int, b: int, c: int) -> int:
    return fmax(fmt, m, fmax(fmt, m, a, b), c)


def fmin3(fmt: Fmt, m: Mode, a: int, b: int, c: int) -> int:
    return fmin(fmt, m, fmin(fmt, m, a, b), c)


def fmed3(fmt: Fmt, m: Mode, a: int, b: int, c: int) -> int:
    if any(fmt.is_nan(x) for x in (a, b, c)):
        return fmin3(fmt, m, a, b, c)
    a, b, c = (flush_in(fmt, m, x) for x in (a, b, c))
    keep = Mode(m.bits | 0xF0)  # only the result is flushed
    top = fmt.value(x) if not fmt.is_inf(x := fmax3(fmt, keep, a, b, c)) else x

    def is_top(y: int) -> bool:
        return (y if fmt.is_inf(y) else fmt.value(y)) == top and fmt.is_inf(y) == fmt.is_inf(x)

    if is_top(a):
        return fmax(fmt, m, b, c)
    if is_top(b):
        return fmax(fmt, m, a, c)
    return fmax(fmt, m, a, b)


def ldexp(fmt: Fmt, m: Mode, x: int, n: int) -> int:
    if fmt.is_nan(x):
        return nan_of(fmt, m, x)
    x = flush_in(fmt, m, x)
    if fmt.is_inf(x) or fmt.is_zero(x):
        return x
    limit = 8 << (fmt.width - fmt.man)
    return finish(fmt, m, fmt.value(x) * Fraction(2) ** max(-limit, min(limit, n)), 0)


def integral(how: int) -> Callable[[Fmt, Mode, int], int]:
    """v_trunc (ZERO), v_ceil (UP), v_floor (DOWN), v_rndne (NEAREST)."""

    def run(fmt: Fmt, m: Mode, x: int) -> int:
        if fmt.is_nan(x):
            return nan_of(fmt, m, x)
        x = flush_in(fmt, m, x)
        if fmt.is_inf(x) or fmt.is_zero(x):
            return x
        n = round_integer(fmt.value(x), how)
        return encode(fmt, Fraction(n), ZERO) if n else x & fmt.sign

    return run


def fract(fmt: Fmt, m: Mode, x: int) -> int:
    """x - floor(x), below 1.0."""
    if fmt.is_nan(x):
        return nan_of(fmt, m, x)
    if fmt.is_inf(x):
        return fmt.default_nan
    x = flush_in(fmt, m, x)
    v = fmt.value(x)
    r = finish(fmt, m, v - v.__floor__(), fmt.sign if m.round(fmt) == DOWN else 0)
    return min(r, fmt.one - 1) if not r & fmt.sign else r


def frexp_exp(fmt: Fmt, m: Mode, x: int) -> int:
    x = flush_in(fmt, m, x)
    if fmt.is_nan(x) or fmt.is_inf(x) or fmt.is_zero(x):
        return 0
    return floor_log2(abs(fmt.value(x))) + 1


def frexp_mant(fmt: Fmt, m: Mode, x: int) -> int:
    if fmt.is_nan(x):
        return nan_of(fmt, m, x)
    x = flush_in(fmt, m, x)
    if fmt.is_inf(x) or fmt.is_zero(x):
        return x
    return encode(fmt, fmt.value(x) / Fraction(2) ** frexp_exp(fmt, m, x), ZERO)


def convert(source: Fmt, to: Fmt, m: Mode, x: int, how: int | None = None) -> int:
    """Float to float; a NaN keeps the upper end of its payload."""
    x = flush_in(source, m, x)
    sign = to.sign if source.negative(x) else 0
    if source.is_nan(x):
        payload = x & ((1 << source.man) - 1)
        shift = to.man - source.man
        payload = payload << shift if shift >= 0 else payload >> -shift
        nan = sign | to.inf | (payload or to.quiet)
        return nan | to.quiet if m.ieee else nan
    if source.is_inf(x):
        return sign | to.inf
    if source.is_zero(x):
        return sign
    how = m.round(to) if how is None else how
    ovfl = to is F16 and m.fp16_ovfl
    return flush_out(to, m, encode(to, source.value(x), how, overflow_to_max=ovfl))


def from_int(fmt: Fmt, m: Mode, n: int) -> int:
    ovfl = fmt is F16 and m.fp16_ovfl
    return encode(fmt, Fraction(n), m.round(fmt), overflow_to_max=ovfl) if n else 0


def to_int(fmt: Fmt, x: int, how: int, low: int, high: int) -> int:
    """Saturating; NaN gives 0."""
    if fmt.is_nan(x):
        return 0
    if fmt.is_inf(x):
        return low if fmt.negative(x) else high
    return max(low, min(high, round_integer(fmt.value(x), how)))


def clamp01(fmt: Fmt, m: Mode, x: int) -> int:
    if fmt.is_nan(x):
        return 0 if m.dx10_clamp else x
    return 0 if x & fmt.sign else min(x, fmt.one)


def omod(fmt: Fmt, m: Mode, x: int, code: int) -> int:
    """Output modifier 1: * 2, 2: * 4, 3: / 2. Ignored with IEEE=1 or denormal results kept."""
    if code == 0 or m.ieee or m.keeps_out(fmt):
        return x
    r = ldexp(fmt, m, x, -1 if code == 3 else code)
    return 0 if fmt.is_zero(r) else r


def classify(fmt: Fmt, x: int) -> int:
    """Bit number in the mask of v_cmp_class."""
    if fmt.is_nan(x):
        return 1 if x & fmt.quiet else 0
    step = 0 if fmt.is_zero(x) else 1 if fmt.is_denorm(x) else 3 if fmt.is_inf(x) else 2
    return 5 - step if fmt.negative(x) else 6 + step
