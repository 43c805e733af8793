"""FLAT and GLOBAL atomics against NumPy and Python models."""

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
    integer_updates,
    packed,
    packed_add,
    vector,
)


def run_atomic(
    m: Machine,
    mnemonic: str,
    size: int,
    data: list[list[int]],
    update: Callable[..., int],
    segments: tuple[str, ...] = ("global", "flat"),
) -> None:
    """Colliding addresses; lanes act in ascending order. `data`: consecutive source operands."""
    dwords = size // 4
    for segment in segments:
        for returns in (False, True):
            for i, values in enumerate(data):
                for d in range(dwords):
                    m.v[4 + i * dwords + d] = [v >> 32 * d & MASK32 for v in values]
            positions = m.rng.integers(0, 16, LANES) * size
            m.set_v64(2, m.address + positions.astype(np.uint64))
            before, memory = m.v.copy(), m.memory.copy()
            source = vector(4, dwords * len(data))
            destination = f"{vector(4, dwords)}, " if returns else ""
            tail = (", off" if segment == "global" else "") + (" sc0" if returns else "")
            run = m.run(f"{segment}_atomic_{mnemonic} {destination}v[2:3], {source}{tail}")
            expected = before.copy()
            changed = False
            for lane in m.active:
                at = int(positions[lane])
                old = int.from_bytes(memory[at : at + size].tobytes(), "little")
                new = update(old, *(values[lane] for values in data))
                changed |= new != old
                memory[at : at + size] = np.frombuffer(new.to_bytes(size, "little"), np.uint8)
                if returns:
                    expected[4 : 4 + dwords, lane] = [old >> 32 * d & MASK32 for d in range(dwords)]
            np.testing.assert_array_equal(m.memory, memory, err_msg=mnemonic)
            np.testing.assert_array_equal(m.v, expected, err_msg=mnemonic)
            assert run.progress == changed


INTEGER = ["swap", "add", "sub", "smin", "umin", "smax", "umax", "and", "or", "xor", "inc", "dec"]


@pytest.mark.parametrize("operation", INTEGER)
@pytest.mark.parametrize("bits", [32, 64])
def test_integer_atomics(operation: str, bits: int) -> None:
    update = integer_updates(bits)[operation]
    for exec_mask in EXEC_MASKS[:2] + EXEC_MASKS[5:6]:
        m = Machine(7, memory_bytes=1024)
        m.exec = exec_mask
        m.memory[:32] = 0
        dtype = np.uint64 if bits == 64 else np.uint32
        for high in (5, 1 << bits):
            data = [int(x) for x in m.rng.integers(0, high, LANES, dtype)]
            run_atomic(m, operation + ("_x2" if bits == 64 else ""), bits // 8, [data], update)


@pytest.mark.parametrize("bits", [32, 64])
def test_compare_and_swap(bits: int) -> None:
    m = Machine(8, memory_bytes=1024)
    m.exec = 0xFFFFFF00FFFFFFFF
    m.memory[:] = 0
    new = [int(x) for x in m.rng.integers(0, 2, LANES)]
    compare = [int(x) for x in m.rng.integers(0, 2, LANES)]
    run_atomic(
        m,
        "cmpswap" + ("_x2" if bits == 64 else ""),
        bits // 8,
        [new, compare],
        lambda memory, stored, compared: stored if memory == compared else memory,
    )


@pytest.mark.parametrize("mode", [DEFAULT_MODE, FLUSH_F32_MODE, 0x30F])
def test_float_atomics_ignore_mode(mode: int) -> None:
    for kind, operation in (
        (F32, "add_f32"),
        (F64, "add_f64"),
        (F64, "min_f64"),
        (F64, "max_f64"),
    ):
        m = Machine(9, memory_bytes=1024, mode=mode)
        size = kind.bits // 8
        m.memory[:] = np.array(kind.samples(m.rng, 1024 // size), f"u{size}").view(np.uint8)

        def update(a: int, b: int, kind: FloatKind = kind, operation: str = operation) -> int:
            if operation.startswith("add"):
                return kind.add(a, b)
            return kind.select(a, b, operation.startswith("max"))

        for _ in range(4):
            run_atomic(m, operation, size, [kind.samples(m.rng, LANES)], update)


@pytest.mark.parametrize("kind,suffix", [(F16, "f16"), (BF16, "bf16")])
@pytest.mark.parametrize("mode", [DEFAULT_MODE, 0x30F])
def test_packed_atomics(kind: FloatKind, suffix: str, mode: int) -> None:
    m = Machine(10, memory_bytes=1024, mode=mode)
    for _ in range(4):
        m.memory[:] = np.array(packed(kind, m.rng, 256), np.uint32).view(np.uint8)
        data = packed(kind, m.rng, LANES)
        run_atomic(m, f"pk_add_{suffix}", 4, [data], lambda a, b: packed_add(kind, a, b))


def test_atomic_with_scalar_base_and_offset() -> None:
    m = Machine(11, memory_bytes=1024)
    m.set_pair(4, m.address + 8)
    m.v[2] = np.arange(LANES) * 4
    words = m.memory.view(np.uint32).copy()
    data = m.v[3].copy()
    m.run("global_atomic_add v6, v2, v3, s[4:5] offset:-8 sc0")
    np.testing.assert_array_equal(m.v[6], words[:LANES])
    np.testing.assert_array_equal(m.memory.view(np.uint32)[:LANES], words[:LANES] + data)


@pytest.mark.parametrize(
    "code,size",
    [("global_atomic_add v[2:3], v4, off", 4), ("flat_atomic_swap_x2 v[2:3], v[4:5]", 8)],
)
def test_misaligned_atomics(code: str, size: int) -> None:
    m = Machine(15, memory_bytes=1024)
    addresses = np.full(LANES, m.address + 64, np.uint64)
    addresses[7] += np.uint64(size // 2)
    m.set_v64(2, addresses)
    with pytest.raises(MachineFault) as error:
        m.run(code)
    assert error.value.kind == FaultKind.MISALIGNED
    assert error.value.lane == 7
