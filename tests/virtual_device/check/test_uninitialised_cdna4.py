"""Uninitialised bits through gfx950's transposing LDS reads and its wide loads to LDS."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.check.taint_machine import Bits, oracle, random_bits, step
from tests.support.isa.machine import EXEC_MASKS, LANES, M0, Machine, assemble

CPU = "gfx950"
LDS_BYTES = 2048
TRANSPOSING = {
    "ds_read_b64_tr_b16 v[2:3], v1 offset:16": (16, 4),
    "ds_read_b64_tr_b8 v[2:3], v1 offset:16": (8, 8),
    "ds_read_b64_tr_b4 v[2:3], v1 offset:16": (4, 16),
    "ds_read_b96_tr_b6 v[3:5], v1 offset:16": (6, 16),
}


def machine(seed: int) -> tuple[Machine, Bits]:
    m = Machine(seed, lds_bytes=LDS_BYTES, memory_bytes=4096, cpu=CPU)
    bits = Bits(lds_bytes=LDS_BYTES)
    bits.lds[:] = random_bits(m.rng, LDS_BYTES // 4).view(np.uint8)
    m.v[1] = m.rng.integers(0, LDS_BYTES // 16 - 1, LANES) * 16
    return m, bits


@pytest.mark.parametrize("text", TRANSPOSING)
def test_bits_go_where_their_elements_go(text: str) -> None:
    """As many marks as the data have, and none on what does not depend on them."""
    width, rows = TRANSPOSING[text]
    first = int(text[text.index("[") + 1 : text.index(":")])
    nbytes = width * rows // 8
    m, bits = machine(1)
    data = np.stack([bits.lds[at + 16 : at + 16 + nbytes] for at in m.v[1].astype(int)])
    assert not step(m, bits, text)
    planes = np.unpackbits(data, axis=1, bitorder="little").reshape(4, rows, 16, width)
    expected = np.packbits(
        planes.transpose(0, 2, 1, 3).reshape(LANES, -1), axis=1, bitorder="little"
    )
    got = np.ascontiguousarray(bits.v[first : first + nbytes // 4].T).view(np.uint8)
    np.testing.assert_array_equal(got, expected)
    assert expected.any() and not expected.all()


@pytest.mark.parametrize("text", TRANSPOSING)
def test_what_differs_is_marked(text: str) -> None:
    for seed in range(4):
        m, bits = machine(seed)
        outcome = oracle(m, bits, np.array(assemble(text, CPU), np.uint32), runs=6, seed=seed)
        assert outcome is not None and not outcome.missed and outcome.marked
        assert outcome.idle <= outcome.marked // 10  # exact: what is marked can differ


def test_initialised_data_clear_the_result() -> None:
    m, bits = machine(3)
    bits.lds[:] = 0
    bits.v[2:4] = 0xFFFFFFFF
    assert not step(m, bits, next(iter(TRANSPOSING)))
    assert not bits.v[2:4].any()


@pytest.mark.parametrize("dwords", [3, 4])
@pytest.mark.parametrize("exec_mask", EXEC_MASKS)
def test_loads_to_lds_initialise_what_they_write(dwords: int, exec_mask: int) -> None:
    """Nothing of other lanes, and of three dwords not the fourth."""
    texts = (
        f"global_load_lds_dwordx{dwords} v[2:3], off",
        f"buffer_load_dwordx{dwords} v4, s[8:11], 0 offen lds",
    )
    for text in texts:
        m, bits = machine(4)
        m.exec = exec_mask
        m.set_v64(2, m.address + 16 * np.arange(LANES, dtype=np.uint64))
        m.v[4] = np.arange(LANES) * 16
        # The last lanes are outside of the buffer in part or whole: they get zeros.
        m.s[8:12] = [m.address & 0xFFFFFFFF, m.address >> 32, 16 * 60 + 8, 4 << 15]
        m.s[M0] = 32
        bits.lds[:] = 0xFF
        expected = bits.lds.copy()
        for lane in m.active:
            expected[32 + 16 * lane :][: 4 * dwords] = 0
        assert not step(m, bits, text)
        np.testing.assert_array_equal(bits.lds, expected)
