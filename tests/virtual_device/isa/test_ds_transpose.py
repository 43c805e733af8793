"""The transposing LDS reads of gfx950 against the ISA manual's matrices and rocRoller's layouts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.isa.assembler import AssemblerError, assemble
from tests.support.isa.disassembler import Disassembler
from tests.support.isa.machine import EXEC_MASKS, LANES, FaultKind, Machine, MachineFault

CPU = "gfx950"
LDS_BYTES = 8192
# Bits of an element, and how many of them a lane has: rows of the matrix of 16 lanes.
FORMS = {
    "ds_read_b64_tr_b16": (16, 4),
    "ds_read_b64_tr_b8": (8, 8),
    "ds_read_b64_tr_b4": (4, 16),
    "ds_read_b96_tr_b6": (6, 16),
}
U8 = npt.NDArray[np.uint8]


def alignment(name: str) -> int:
    return 16 if "b96" in name else 8


def elements(data: U8, bits: int) -> U8:
    """(lanes, bytes) to (lanes, elements, bits): the bits of each element, the lowest first."""
    unpacked = np.unpackbits(data, axis=1, bitorder="little")
    return unpacked.reshape(len(data), -1, bits)


def packed(values: U8) -> U8:
    """The inverse of `elements`."""
    return np.packbits(values.reshape(len(values), -1), axis=1, bitorder="little")


def transposed(data: U8, bits: int, rows: int) -> U8:
    """Column c of the 16 columns that the data of 16 lanes are, for lane c."""
    groups = elements(data, bits).reshape(4, rows, 16, bits)
    return packed(groups.transpose(0, 2, 1, 3).reshape(LANES, rows, bits))


def read(m: Machine, text: str, dwords: int, first: int, file: str = "v") -> U8:
    """Bytes that each lane got."""
    m.run(text)
    registers = (m.a if file == "a" else m.v)[first : first + dwords]
    return np.ascontiguousarray(registers.T).view(np.uint8)


def gathered(m: Machine, addresses: npt.NDArray[np.uint32], nbytes: int) -> U8:
    return np.stack([m.lds[at : at + nbytes] for at in addresses.astype(int)])


@pytest.mark.parametrize("file", ["v", "a"])
@pytest.mark.parametrize("name", FORMS)
def test_lanes_exchange_elements(name: str, file: str) -> None:
    bits, rows = FORMS[name]
    nbytes = bits * rows // 8
    dwords, step = nbytes // 4, alignment(name)
    for seed in range(3):
        m = Machine(seed, lds_bytes=LDS_BYTES, cpu=CPU)
        offset = 3 * step
        m.v[1] = m.rng.integers(0, (LDS_BYTES - offset) // step, LANES) * step
        m.v[1][:2] = [0, LDS_BYTES - offset - step]
        data = gathered(m, m.v[1] + np.uint32(offset), nbytes)
        first = 1 if name.endswith("b6") and file == "v" else 6  # over the address
        lds = m.lds.copy()
        text = f"{name} {file}[{first}:{first + dwords - 1}], v1 offset:{offset}"
        np.testing.assert_array_equal(
            read(m, text, dwords, first, file), transposed(data, bits, rows)
        )
        np.testing.assert_array_equal(m.lds, lds)


# ISA manual, 11.4: values of K that the first of two instructions loads, and those of the other.
# Columns are 32 in b16, b6 and b4, 16 in b8, as there are lanes that do not share values of K.
MANUAL = {
    "ds_read_b64_tr_b16": (32, [(0, 8), (4, 12)]),
    "ds_read_b64_tr_b8": (16, [(0, 16, 32, 48), (8, 24, 40, 56)]),
    "ds_read_b64_tr_b4": (32, [(0, 32), (16, 48)]),
    "ds_read_b96_tr_b6": (32, [(0, 32), (16, 48)]),
}


@pytest.mark.parametrize("name", FORMS)
def test_two_reads_load_the_manuals_matrix(name: str) -> None:
    """Column-major A, a row of LDS for each k: lane l gets column l of its values of k."""
    bits, rows = FORMS[name]
    columns, halves = MANUAL[name]
    nbytes = bits * rows // 8
    per_row = columns // rows if columns > rows else 1  # data of a lane in a row of LDS
    pitch = per_row * alignment(name)
    depth = 2 * rows * len(halves[0])
    m = Machine(5, lds_bytes=depth * pitch, cpu=CPU)
    matrix = m.rng.integers(0, 2, (depth, columns, bits), np.uint8)
    for k in range(depth):
        pieces = packed(matrix[k].reshape(per_row, -1, bits))
        for place, piece in enumerate(pieces):
            at = k * pitch + place * alignment(name)
            m.lds[at : at + nbytes] = piece
    lanes = np.arange(LANES)
    group, lane = lanes // 16, lanes % 16
    groups_of_row = columns // 16
    per_group = 16 // rows  # data of a lane in the 16 columns of a group
    for starts in halves:
        k = np.array(starts)[group // groups_of_row] + lane // per_group
        place = group % groups_of_row * per_group + lane % per_group
        m.v[1] = k * pitch + place * alignment(name)
        got = elements(read(m, f"{name} v[2:{1 + nbytes // 4}], v1", nbytes // 4, 2), bits)
        for i in range(LANES):
            first = starts[i // columns]
            np.testing.assert_array_equal(got[i], matrix[first : first + rows, i % columns])


@pytest.mark.parametrize("name", FORMS)
def test_rocrollers_layouts(name: str) -> None:
    """What the tests of rocRoller require of a GPU, of both instructions that they run.

    Data lie in LDS in the order of lanes, two a lane; of each 32 data 16 go to the first
    instruction and 16 to the second. Element y of row x of a submatrix becomes element x of row y.
    """
    bits, rows = FORMS[name]
    nbytes = bits * rows // 8
    step = alignment(name)
    m = Machine(7, lds_bytes=128 * step, cpu=CPU)
    values = m.rng.integers(0, 2, (128 * rows, bits), np.uint8)
    for number, piece in enumerate(packed(values.reshape(128, rows, bits))):
        m.lds[number * step : number * step + nbytes] = piece
    lanes = np.arange(LANES)
    m.v[1] = (32 * (lanes // 16) + lanes % 16) * step
    dwords = nbytes // 4
    for t in range(2):
        data = read(m, f"{name} v[2:{1 + dwords}], v1 offset:{16 * step * t}", dwords, 2)
        got = elements(data, bits).reshape(4, 16, rows, bits)  # group, lane, element
        matrices = values.reshape(4, 2, rows, 16, bits)[:, t]
        np.testing.assert_array_equal(got, matrices.transpose(0, 2, 1, 3))


@pytest.mark.parametrize("name", FORMS)
def test_exec_has_all_lanes_or_none(name: str) -> None:
    dwords = FORMS[name][0] * FORMS[name][1] // 32
    text = f"{name} v[2:{1 + dwords}], v1"
    for exec_mask in EXEC_MASKS:
        m = Machine(9, lds_bytes=LDS_BYTES, cpu=CPU)
        m.v[1] = np.arange(LANES) * 16
        m.exec = exec_mask
        before = m.v.copy()
        if 0 < m.exec < (1 << LANES) - 1:
            with pytest.raises(MachineFault, match="EXEC is not all ones") as fault:
                m.run(text)
            assert fault.value.kind == FaultKind.ILLEGAL_INSTRUCTION
            assert not m.exec >> fault.value.lane & 1
        else:
            m.run(text)
        assert np.array_equal(before, m.v) == (m.exec != (1 << LANES) - 1)


@pytest.mark.parametrize("name", FORMS)
def test_addresses_are_aligned_and_inside(name: str) -> None:
    step = alignment(name)
    dwords = FORMS[name][0] * FORMS[name][1] // 32
    for address, kind in ((step // 2, FaultKind.MISALIGNED), (LDS_BYTES, FaultKind.LDS_BOUNDS)):
        m = Machine(3, lds_bytes=LDS_BYTES, cpu=CPU)
        m.v[1] = np.arange(LANES) * step
        m.v[1][37] = address
        with pytest.raises(MachineFault) as fault:
            m.run(f"{name} v[2:{1 + dwords}], v1")
        assert (fault.value.kind, fault.value.lane) == (kind, 37)


def test_only_the_96_bit_form_may_start_at_an_odd_register(vdev_lib: object) -> None:
    disassembler = Disassembler(vdev_lib, CPU)  # type: ignore[arg-type]
    for name, (bits, rows) in FORMS.items():
        dwords = bits * rows // 32
        for file in "va":
            even, odd = (f"{name} {file}[{n}:{n + dwords - 1}], v9 offset:64" for n in (2, 3))
            words = np.frombuffer(assemble([even], CPU)[0], np.uint32).copy()
            words[1] += 1 << 24
            (decoded,) = disassembler.decode(words[None])
            if name.endswith("b6"):
                assert assemble([odd], CPU) == [words.tobytes()]
                assert decoded.text == odd
            else:
                with pytest.raises(AssemblerError):
                    assemble([odd], CPU)
                assert "odd register" in decoded.text


@pytest.mark.parametrize("name", FORMS)
def test_gfx942_has_none(name: str, vdev_lib: object) -> None:
    dwords = FORMS[name][0] * FORMS[name][1] // 32
    words = np.frombuffer(assemble([f"{name} v[2:{1 + dwords}], v1"], CPU)[0], np.uint32)[None]
    for cpu, size in (("gfx942", 0), (CPU, 2)):
        (decoded,) = Disassembler(vdev_lib, cpu).decode(words)  # type: ignore[arg-type]
        assert decoded.size == size
