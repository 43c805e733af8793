"""What no table of wait states says and the kernels of this package keep all the same."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from elftools.elf.elffile import ELFFile

from amdattn.device.code_object import read_kernels
from benchmarks.checker_mutation.code import Instruction, disassemble
from tests.support.code_objects import code_object, code_objects
from tests.support.vdev_library import CPUS

WAIT = 5  # states between a VALU write of an SGPR and the vector memory instruction that reads it
_SGPR = re.compile(r"\b(?:s(\d+)\b|s\[(\d+):(\d+)\]|(vcc)\b)")
_SCALAR_WITHOUT_RESULT = (
    "s_cmp_",
    "s_bitcmp",
    "s_cbranch",
    "s_wait",
    "s_barrier",
    "s_set",
    "s_nop",
)
_READS_RESULT = ("s_mulk", "s_addk", "s_cmovk", "s_cmov_")
_VECTOR_MEMORY = ("buffer_", "flat_", "global_", "scratch_")
_LONG_SHIFT = re.compile(r"v_(lshlrev_b64|lshrrev_b64|ashrrev_i64)")
_GRANULE = 8  # VGPRs are allocated in blocks of so many


def objects(cpu: str) -> Iterator[tuple[str, list[Instruction]]]:
    """The code objects of this package, by name, with their code."""
    for name, image in code_objects(cpu).items():
        text = ELFFile(io.BytesIO(image)).get_section_by_name(".text")
        assert text is not None
        yield name, disassemble(text.data(), text["sh_addr"], cpu)


def sgprs(text: str) -> set[str]:
    found: set[str] = set()
    for one, first, last, vcc in _SGPR.findall(text):
        numbers = [int(one)] if one else range(int(first), int(last) + 1) if first else []
        found |= {f"s{number}" for number in numbers} | ({vcc} if vcc else set())
    return found


def valu_results(instruction: Instruction) -> set[str]:
    """SGPRs and VCC that a VALU instruction writes: its results come first."""
    if not instruction.mnemonic.startswith("v_"):
        return set()
    results = 2 if re.search(r"_co_|div_scale|mad_[ui]64", instruction.mnemonic) else 1
    return sgprs(" ".join(instruction.operands[:results]))


def untouched(code: list[Instruction]) -> Iterator[str]:
    """Loads and stores of SGPRs that a VALU wrote, with too few wait states.

    Left out are SGPRs that a scalar instruction has overwritten since, in a chain of scalar
    instructions that has read the VALU's result and so has waited for it.
    """
    for at, producer in enumerate(code):
        pending, read, wait = valu_results(producer), False, 0
        if not pending:
            continue
        for then in code[at + 1 : at + 1 + WAIT]:
            if not pending or wait >= WAIT or then.mnemonic in ("s_branch", "s_endpgm"):
                break
            if then.mnemonic.startswith(_VECTOR_MEMORY) and sgprs(then.text) & pending:
                yield f"{producer.pc:#x} {producer.text}; {then.pc:#x} {then.text}"
            if then.mnemonic.startswith("s_") and then.operands:
                has_result = not then.mnemonic.startswith(_SCALAR_WITHOUT_RESULT)
                first = has_result and not then.mnemonic.startswith(_READS_RESULT)
                read |= bool(sgprs(" ".join(then.operands[first:])) & pending)
                if read and has_result:
                    pending -= sgprs(then.operands[0])
            wait += int(then.operands[0], 0) + 1 if then.mnemonic == "s_nop" else 1


def test_the_scan_sees_what_it_is_for() -> None:
    def code(*texts: str) -> list[Instruction]:
        return [Instruction(4 * i, b"\0" * 4, text) for i, text in enumerate(texts)]

    first, load = "v_readfirstlane_b32 s4, v0", "global_load_dword v1, v2, s[4:5]"
    chain = ["s_mul_hi_i32 s5, s4, 24", "s_mulk_i32 s4, 0x18", "s_add_u32 s4, s8, s4"]
    assert list(untouched(code(first, *chain, load))) == []
    assert list(untouched(code(first, "s_nop 4", load))) == []
    for between in ([], ["s_nop 3"], ["s_mul_hi_i32 s5, s4, 24"], ["s_mov_b32 s4, 0"]):
        assert len(list(untouched(code(first, *between, load)))) == 1, between


def long_shifts(code: list[Instruction], owned: int) -> Iterator[str]:
    """64-bit shifts whose amount is in the last of the VGPRs that the wave owns.

    LLVM 24 copies such an amount first (llvm-project 183839): it may be read wrongly.
    """
    for instruction in code:
        if _LONG_SHIFT.match(instruction.mnemonic):
            amount = re.fullmatch(r"v(\d+)", instruction.operands[1])
            if amount and int(amount[1]) % _GRANULE == _GRANULE - 1 and int(amount[1]) + 1 >= owned:
                yield f"{instruction.pc:#x} {instruction.text}"


@pytest.mark.slow
@pytest.mark.parametrize("cpu", CPUS)
def test_shipped_code_objects_have_none(cpu: str) -> None:
    wrong = []
    for name, code in objects(cpu):
        (kernel,) = read_kernels(code_object(f"{cpu}/{name}"), name).values()
        owned = kernel.resources["vgpr"] - kernel.resources["agpr"]
        wrong += [f"{name}: {place}" for place in (*untouched(code), *long_shifts(code, owned))]
    assert wrong == []


def test_long_shift_by_the_last_register() -> None:
    shift = Instruction(0, b"\0" * 8, "v_lshlrev_b64 v[4:5], v15, v[6:7]")
    assert len(list(long_shifts([shift], owned=16))) == 1
    assert list(long_shifts([shift], owned=17)) == []
