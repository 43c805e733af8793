"""DS atomics against NumPy and Python models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.isa.machine import (
    DEFAULT_MODE,
    EXEC_MASKS,
    FLUSH_F32_MODE,
    LANES,
    FaultKind,
    Machine,
    MachineFault,
)
from tests.support.isa.memory_oracle import (
    BF16,
    F16,
    F32,
    F64,
    MASK32,
    FloatKind,
    check_registers,
    integer_updates,
    packed,
    packed_add,
    vector,
)


def run_atomic(
    m: Machine,
    instruction: str,
    returning: str,
    size: int,
    data: list[list[int]],
    update: Callable[..., int],
) -> None:
    """Both forms of a DS atomic on colliding addresses: lanes act in ascending order.

    `data` holds the operands per source; `update` maps (memory, *data of the lane) to memory.
    """
    dwords = size // 4
    sources = [4 + 2 * i for i in range(len(data))]
    for source, values in zip(sources, data, strict=True):
        for d in range(dwords):
            m.v[source + d] = [v >> 32 * d & MASK32 for v in values]
    for returns in (False, True):
        name = returning if returns else instruction
        if not name:
            continue
        m.v[1] = m.rng.integers(0, 24, LANES) * size
        before, lds = m.v.copy(), m.lds.copy()
        operands = ", ".join(["v1"] + [vector(s, dwords) for s in sources])
        destination = f"{vector(4, dwords)}, " if returns else ""
        m.run(f"{name} {destination}{operands} offset:16")
        expected = {}
        for lane in m.active:
            at = int(before[1, lane]) + 16
            old = int.from_bytes(lds[at : at + size].tobytes(), "little")
            new = update(old, *(values[lane] for values in data))
            lds[at : at + size] = np.frombuffer(new.to_bytes(size, "little"), np.uint8)
            if returns:
                for d in range(dwords):
                    expected[(4 + d, lane)] = old >> 32 * d & MASK32
        np.testing.assert_array_equal(m.lds, lds, err_msg=name)
        check_registers(m, before, expected)
        for source, values in zip(sources, data, strict=True):
            for d in range(dwords):
                m.v[source + d] = [v >> 32 * d & MASK32 for v in values]


INTEGER_NAMES = {
    "add": "add_{r}u",
    "sub": "sub_{r}u",
    "rsub": "rsub_{r}u",
    "inc": "inc_{r}u",
    "dec": "dec_{r}u",
    "smin": "min_{r}i",
    "smax": "max_{r}i",
    "umin": "min_{r}u",
    "umax": "max_{r}u",
    "and": "and_{r}b",
    "or": "or_{r}b",
    "xor": "xor_{r}b",
    "swap": "wrxchg_{r}b",
}


@pytest.mark.parametrize("operation", INTEGER_NAMES)
@pytest.mark.parametrize("bits", [32, 64])
def test_integer_atomics(operation: str, bits: int) -> None:
    update = integer_updates(bits)[operation]
    for exec_mask in EXEC_MASKS[:1] + EXEC_MASKS[4:6]:
        m = Machine(seed=6, lds_bytes=1024)
        m.lds[:64] = 0  # inc and dec meet their limits
        m.exec = exec_mask
        small = [int(x) for x in m.rng.integers(0, 5, LANES)]
        wide = m.random_words(bits)
        name = f"ds_{INTEGER_NAMES[operation]}{bits}"
        plain = "" if operation == "swap" else name.format(r="")
        for data in (small, wide):
            run_atomic(m, plain, name.format(r="rtn_"), bits // 8, [data], update)


@pytest.mark.parametrize("bits", [32, 64])
def test_two_operand_atomics(bits: int) -> None:
    m = Machine(seed=7, lds_bytes=1024)
    m.exec = 0xFFFF0FFFF0FFFFFF
    mask = (1 << bits) - 1
    first = m.random_words(bits)
    second = [x * 0x9E3779B97F4A7C15 & mask for x in first]
    run_atomic(
        m,
        f"ds_mskor_b{bits}",
        f"ds_mskor_rtn_b{bits}",
        bits // 8,
        [first, second],
        lambda memory, clear, put: memory & ~clear & mask | put,
    )
    # Compare with what is there in most lanes: the first datum is compared, the second stored.
    m.lds[:] = 0
    compare = [int(x) for x in m.rng.integers(0, 2, LANES)]
    store = [int(x) for x in m.rng.integers(0, 2, LANES)]
    run_atomic(
        m,
        f"ds_cmpst_b{bits}",
        f"ds_cmpst_rtn_b{bits}",
        bits // 8,
        [compare, store],
        lambda memory, compared, stored: stored if memory == compared else memory,
    )


def test_wrap() -> None:
    m = Machine(seed=8, lds_bytes=1024)
    data, more = m.random_words(32), m.random_words(32)
    run_atomic(
        m,
        "",
        "ds_wrap_rtn_b32",
        4,
        [data, more],
        lambda memory, d, w: (memory - d if memory >= d else memory + w) & MASK32,
    )


@pytest.mark.parametrize("kind,suffix", [(F32, "f32"), (F64, "f64")])
@pytest.mark.parametrize("mode", [DEFAULT_MODE, FLUSH_F32_MODE, 0x30F, 0x35A])
def test_float_atomics(kind: FloatKind, suffix: str, mode: int) -> None:
    """Rounding is to nearest even whatever MODE says; its denormal fields count."""
    denorm = mode >> (4 if kind is F32 else 6) & 3
    keep_in, keep_out = bool(denorm & 1), bool(denorm & 2)
    size = kind.bits // 8
    m = Machine(seed=9, lds_bytes=1024, mode=mode)
    values = kind.samples(m.rng, 1024 // size)
    m.lds[:] = np.array(values, f"u{size}").view(np.uint8)
    data = kind.samples(m.rng, LANES)
    adds_keep = kind is F64  # f64 sums are never flushed
    run_atomic(
        m,
        f"ds_add_{suffix}",
        f"ds_add_rtn_{suffix}",
        size,
        [data],
        lambda a, b: kind.add(a, b, keep_in or adds_keep, keep_out or adds_keep),
    )
    m.lds[:] = np.array(values, f"u{size}").view(np.uint8)
    for largest, name in ((False, "min"), (True, "max")):
        run_atomic(
            m,
            f"ds_{name}_{suffix}",
            f"ds_{name}_rtn_{suffix}",
            size,
            [data],
            lambda a, b, largest=largest: kind.select(a, b, largest, keep_in),
        )
    m.lds[:] = np.array(values, f"u{size}").view(np.uint8)
    compare = [values[i % 28] for i in range(LANES)]
    run_atomic(
        m,
        f"ds_cmpst_{suffix}",
        f"ds_cmpst_rtn_{suffix}",
        size,
        [compare, data],
        lambda a, b, c: kind.compare_store(a, b, c, keep_in),
    )


@pytest.mark.parametrize("kind,suffix", [(F16, "f16"), (BF16, "bf16")])
@pytest.mark.parametrize("mode", [DEFAULT_MODE, 0x330])
def test_packed_atomics(kind: FloatKind, suffix: str, mode: int) -> None:
    keep = bool(mode >> 6 & 3)
    m = Machine(seed=10, lds_bytes=1024, mode=mode)
    for _ in range(8):
        m.lds[:] = np.array(packed(kind, m.rng, 256), np.uint32).view(np.uint8)
        run_atomic(
            m,
            f"ds_pk_add_{suffix}",
            f"ds_pk_add_rtn_{suffix}",
            4,
            [packed(kind, m.rng, LANES)],
            lambda a, b: packed_add(kind, a, b, keep),
        )


@pytest.mark.parametrize("code,size", [("ds_add_u32 v1, v2", 4), ("ds_add_f64 v1, v[2:3]", 8)])
def test_misaligned_atomics(code: str, size: int) -> None:
    m = Machine(seed=20, lds_bytes=1024)
    m.v[1] = 64
    m.v[1][33] = 64 + size // 2
    with pytest.raises(MachineFault) as error:
        m.run(code)
    assert error.value.kind == FaultKind.MISALIGNED
    assert error.value.lane == 33
