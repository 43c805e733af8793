"""v_cvt_scalef32_*: every row against exact arithmetic on the values of ml_dtypes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.isa.assembly import VOP3, assemble_each, row_names
from tests.support.isa.float_oracle import Mode
from tests.support.isa.machine import ALL_LANES, DEFAULT_MODE, LANES, Machine, MachineFault
from tests.support.isa.scaled_oracle import NARROW, WIDE, Conversion, narrow, nearest
from tests.support.isa.vectors import FLUSH_F32_MODE, HOLES, specials

CPU = "gfx950"
PREFIX = "v_cvt_scalef32_"
NAMES = sorted(name for name in row_names(VOP3, CPU) if name.startswith(PREFIX))
FP16_OVFL = 1 << 23
MODES = (DEFAULT_MODE, FLUSH_F32_MODE, DEFAULT_MODE | FP16_OVFL)
# Registers: sources at v0 and v32, seed at v32, scale at v64, destination at v100.
SECOND, SCALE, DST = 32, 64, 100


def registers(first: int, bits: int) -> str:
    return f"v{first}" if bits <= 32 else f"v[{first}:{first + bits // 32 - 1}]"


def text_of(name: str, places: tuple[int, int] = (0, 0)) -> str:
    """The instruction that reads and writes these places of a dword."""
    c = Conversion.named(name)
    operands = [registers(DST, c.result_bits), registers(0, c.source_bits)]
    if c.operands == 3:
        operands.append(registers(SECOND, c.source_bits if c.two_sources else 32))
    select = [0, 0, 0, 0]
    count = [len(range(n)) for n in c.selects]
    if count[0] > 1:
        select[:2] = places[0] & 1, places[0] >> 1
    if count[1] == 2:
        select[3] = places[1]
    elif count[1] == 4:
        select[2:] = places[1] & 1, places[1] >> 1
    if c.operands == 2 and count[1] != 4:
        del select[2]
    suffix = f" op_sel:[{','.join(map(str, select))}]" if any(select) else ""
    return f"{name} {', '.join([*operands, f'v{SCALE}'])}{suffix}"


def interesting(m: Machine, c: Conversion, lanes: slice) -> None:
    """Numbers of which some overflow, some become zero, some lie between two codes."""
    if c.source in NARROW:
        return  # all codes, by chance
    wide, to = WIDE[c.source], NARROW[c.to]
    per_dword = 32 // wide.width
    first = [*range(c.source_bits // 32 or 1)]
    for reg in [*first, *([SECOND + r for r in first] if c.two_sources else [])]:
        for lane in range(LANES)[lanes]:
            word = 0
            scale = int(m.v[SCALE, lane]) >> 23 & 0xFF
            for i in range(per_dword):
                exponent = scale - 127 + wide.bias + int(m.rng.integers(-to.bias - 3, to.bias + 5))
                field = max(0, min((1 << wide.width - 1 - wide.man) - 2, exponent))
                man = int(m.rng.integers(1 << wide.man))
                if m.rng.random() < 0.5:  # few bits: ties
                    man &= -1 << wide.man - to.man - 1
                sign = int(m.rng.integers(2)) << wide.width - 1
                word |= (sign | field << wide.man | man) << i * wide.width
            m.v[reg, lane] = word


def prepared(seed: int, c: Conversion) -> Machine:
    """Half of the lanes hold interesting numbers, others specials and random bits."""
    m = Machine(seed=seed, cpu=CPU)
    m.v[SCALE] = m.v[SCALE] & 0x807FFFFF | m.rng.integers(110, 145, LANES).astype(np.uint32) << 23
    m.v[SCALE, :6] = [0, 0x7F800000, 0xFF812345, 0x00800000, 0x7F000001, 0x3F800000]
    interesting(m, c, slice(6, 40))
    if c.source in WIDE:
        kind = {"f32": "f32", "f16": "pf16", "bf16": "pbf16"}[c.source]
        values = specials(kind)
        for reg in (0, 1, SECOND):
            m.v[reg, 40:56] = m.rng.choice(np.array(values, np.uint64), 16).astype(np.uint32)
    return m


def whole(m: Machine, first: int, bits: int, lane: int) -> int:
    return sum(int(m.v[first + i, lane]) << 32 * i for i in range(max(1, bits // 32)))


def check(name: str, words: tuple[int, ...], places: tuple[int, int], mode: int, mask: int) -> None:
    c = Conversion.named(name)
    m = prepared(mode + 7 * places[0] + places[1], c)
    m.mode, m.exec = mode, mask
    before = m.v.copy()
    want = before.copy()
    for lane in m.active:
        sources = [whole(m, 0, c.source_bits, lane), whole(m, SECOND, c.source_bits, lane)]
        scale, seed = int(m.v[SCALE, lane]) >> 23 & 0xFF, int(m.v[SECOND, lane])
        old = whole(m, DST, c.result_bits, lane)
        result = c.lane(Mode(mode), sources, scale, seed, old, places)
        for i in range(max(1, c.result_bits // 32)):
            want[DST + i, lane] = result >> 32 * i & 0xFFFFFFFF
    m.run(words)
    wrong = np.argwhere(m.v != want)
    assert not wrong.size, [
        f"{name} mode {mode:#x} places {places}: v{r} lane {lane}: got {m.v[r, lane]:#010x}, "
        f"want {want[r, lane]:#010x} of {before[0, lane]:#x}, {before[SECOND, lane]:#x} "
        f"scale {before[SCALE, lane]:#x}"
        for r, lane in wrong[:4]
    ]


def test_every_conversion_is_here() -> None:
    """Between every wide and every narrow format both ways, but one: f32 to fp6 and bf6 takes two
    sources, or a seed."""
    pairs = {(c.to, c.source) for c in map(Conversion.named, NAMES)}
    assert pairs == {pair for w in WIDE for n in NARROW for pair in ((w, n), (n, w))}
    assert len(NAMES) == 49


@pytest.mark.parametrize("name", NAMES)
def test_row(name: str) -> None:
    c = Conversion.named(name)
    places = list(itertools.product(*map(range, c.selects)))
    texts = {place: text_of(name, place) for place in places}
    codes = assemble_each(texts.values(), CPU)
    for number, place in enumerate(places):
        words = codes[texts[place]]
        assert words is not None, texts[place]
        for mode in MODES if number == 0 else MODES[:1]:
            check(name, words, place, mode, HOLES if number % 2 else ALL_LANES)


def test_signs_of_f32_sources() -> None:
    m = Machine(seed=5, cpu=CPU)
    m.v[SCALE] = 0x3F800000
    m.v[0], m.v[1] = 0x40490FDB, 0xC0490FDB  # pi
    m.v[DST] = 0
    m.run(f"v_cvt_scalef32_pk_fp8_f32 v{DST}, -v0, |v1|, v{SCALE}")
    pi = narrow(Mode(DEFAULT_MODE), NARROW["fp8"], WIDE["f32"], 0x40490FDB, 127, None)
    assert (m.v[DST] == (pi << 8 | pi | 0x80)).all()
    m.run(f"v_cvt_scalef32_sr_bf8_f16 v{DST}, -|v2|, v3, -v{SCALE}")  # the scale's sign is nothing
    assert (m.v[DST] & 0x80).all()


@pytest.mark.parametrize("scale", ["1.0", "0.5", "4.0", "-2.0", "7"])
def test_constant_scales(scale: str) -> None:
    """Of a float its exponent counts; an integer is a denormal, with the smallest scale."""
    exponent = {"1.0": 127, "0.5": 126, "4.0": 129, "-2.0": 128, "7": 0}[scale]
    m = Machine(seed=6, cpu=CPU)
    m.run(f"v_cvt_scalef32_f32_fp8 v{DST}, v0, {scale}")
    c = Conversion.named("v_cvt_scalef32_f32_fp8")
    for lane in range(LANES):
        want = c.lane(Mode(DEFAULT_MODE), [int(m.v[0, lane])], exponent, 0, 0, (0, 0))
        assert m.v[DST, lane] == want


@pytest.mark.parametrize(
    ("source", "one"),
    [("v_cvt_scalef32_pk_fp8_f16", 0x3C00), ("v_cvt_scalef32_pk_fp8_bf16", 0x3F80)],
)
def test_constants_have_the_format_of_the_source(source: str, one: int) -> None:
    m = Machine(seed=7, cpu=CPU)
    m.v[0], m.v[DST] = one, 0
    m.v[SCALE] = 0x3F800000
    m.run(f"{source} v{DST}, 1.0, v{SCALE}\n{source} v{DST + 1}, v0, v{SCALE}")
    assert (m.v[DST] & 0xFFFF == m.v[DST + 1] & 0xFFFF).all()
    assert (m.v[DST] & 0xFFFF == 0x38).all()


def test_results_may_overwrite_their_sources() -> None:
    m, other = Machine(seed=8, cpu=CPU), Machine(seed=8, cpu=CPU)
    m.run(f"v_cvt_scalef32_pk32_f32_bf6 v[0:31], v[0:5], v{SCALE}")
    other.run(f"v_cvt_scalef32_pk32_f32_bf6 v[{DST}:{DST + 31}], v[0:5], v{SCALE}")
    assert (m.v[:32] == other.v[DST : DST + 32]).all()


@pytest.mark.parametrize("name", NARROW)
def test_every_code_comes_back(name: str) -> None:
    """Widened and narrowed again: what has a value is itself."""
    to = NARROW[name]
    assert [nearest(to.values, x) for x in to.values] == [*range(len(to.values))]
    if to.bits != 8:
        return
    m = Machine(seed=9, cpu=CPU)
    m.v[SCALE] = m.v[SCALE] & 0x7FFFFF | 0x3F000000
    for begin in range(0, 256, LANES):
        m.v[0] = np.arange(begin, begin + LANES)
        m.v[DST] = 0
        m.run(
            f"v_cvt_scalef32_pk_f32_{name} v[2:3], v0, v{SCALE}\n"
            f"v_cvt_scalef32_pk_{name}_f32 v{DST}, v2, v3, v{SCALE}"
        )
        finite = m.v[0] & 0x7F <= to.greatest
        assert (m.v[DST] == m.v[0])[finite].all()


def test_other_architectures_refuse_them() -> None:
    words = assemble_each([text_of(NAMES[0])], CPU)[text_of(NAMES[0])]
    with pytest.raises(MachineFault):
        Machine(seed=10).run(words)
