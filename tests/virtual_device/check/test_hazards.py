"""Required wait states: the checker against LLVM's hazard recogniser, and against the ISA manual.

hazard_oracle_*.json hold what LLVM inserted between pairs of instructions (see hazard_oracle.py).
"""

from __future__ import annotations

import ctypes
import io
import json
import re
from collections import Counter
from dataclasses import dataclass

import pytest
from elftools.elf.elffile import ELFFile

from amdattn.device.virtual_library import library_path
from build_scripts.hazards import PAGE, hazard_rules, render
from tests.support.check.hazard_oracle import oracle_path
from tests.support.code_objects import code_objects
from tests.support.isa.assembler import assemble
from tests.support.vdev_library import CPUS, DEFAULT_CPU, choose_machine, open_library

ORACLES = {cpu: json.loads(oracle_path(cpu).read_text()) for cpu in CPUS}

WAITS = {
    "gfx942": {*range(12), *range(15, 20)},
    "gfx950": {*range(13), *range(15, 21)},
}
# Rules by which the checker asks for more than LLVM does: rows of the ISA manual that LLVM has not,
# or has for fewer instructions.
BEYOND_LLVM = {
    "setreg-vskip-vector",
    "dot-read",  # by matrix instructions
    "dot-write",
    "xdl-c-valu-write",  # the index of v_smfmac
    "xdl-c-memory-write",
    "sgemm-xdl-c",
    "dgemm16-valu-late-write",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A finding; pc in bytes."""

    kind: str
    pc: int
    producer_pc: int
    where: str
    rule: str


class Checker:
    """The library's hazard checker, over machine code of a processor that is not executed."""

    def __init__(self, cpu: str = DEFAULT_CPU) -> None:
        arguments = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
        library = open_library(vdev_test_hazards=(ctypes.c_size_t, arguments))
        self.cpu = cpu
        self.oracle = ORACLES[cpu]
        self._library = library
        self._run = library.vdev_test_hazards
        self._out = ctypes.create_string_buffer(1 << 20)

    def __call__(self, code: bytes) -> list[Found]:
        choose_machine(self._library, self.cpu)
        needed = self._run(code, len(code) // 4, self._out, len(self._out))
        assert needed <= len(self._out)
        lines = (line.split("\t") for line in self._out.value.decode().splitlines())
        return [
            Found(kind, int(pc), int(producer), where, message.split(":")[0])
            for kind, pc, producer, where, message in lines
        ]


@pytest.fixture(scope="module")
def check() -> Checker:
    return Checker()


@pytest.fixture(scope="module", params=CPUS)
def check_of(request: pytest.FixtureRequest) -> Checker:
    """Of each processor."""
    return Checker(request.param)


def nops(wait_states: int) -> bytes:
    """s_nop for some wait states, as few as may be."""
    code = b""
    while wait_states > 0:
        code += (0xBF800000 | min(wait_states, 16) - 1).to_bytes(4, "little")
        wait_states -= 16
    return code


def test_agrees_with_llvm(check_of: Checker) -> None:
    check, oracle = check_of, check_of.oracle
    instructions = [(text, bytes.fromhex(code)) for text, code in oracle["instructions"]]
    waits: Counter[int] = Counter()
    wrong = []
    for first, then, wait in oracle["pairs"]:
        (producer, head), (consumer, tail) = instructions[first], instructions[then]
        found = [f for f in check(head + nops(wait) + tail) if f.pc > 0]
        if not {f.rule for f in found} <= BEYOND_LLVM:
            wrong.append(f"{producer}; {wait} wait states; {consumer}: {found}")
        if wait and not [f for f in check(head + nops(wait - 1) + tail) if f.pc > 0]:
            wrong.append(f"{producer}; {wait - 1} wait states; {consumer}: nothing found")
        waits[wait] += 1
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:20])
    # The record has pairs for every wait that the rules ask for.
    assert set(waits) >= WAITS[check.cpu]


def test_every_rule_of_llvm_has_a_pair(check_of: Checker) -> None:
    check, oracle = check_of, check_of.oracle
    instructions = [bytes.fromhex(code) for _, code in oracle["instructions"]]
    seen = {
        found.rule
        for first, then, wait in oracle["pairs"]
        if wait
        for found in check(instructions[first] + nops(wait - 1) + instructions[then])
    }
    rules = [rule for rule in hazard_rules(library_path()) if rule.holds_for(check.cpu)]
    of_llvm = {r.name for r in rules if re.search(r"(?<!from )LLVM(?!:)", r.source)}
    assert of_llvm - seen == set()


def test_longer_code(check_of: Checker) -> None:
    check = check_of
    # LLVM's own code has none of the hazards that LLVM knows; with a wait state less it has.
    weakened = found = 0
    for block in check.oracle["blocks"]:
        code = [bytes.fromhex(c) for c in block.split()]
        present = check(b"".join(code))
        assert {f.rule for f in present} <= BEYOND_LLVM
        for i, instruction in enumerate(code):
            if instruction[2:] != b"\x80\xbf":  # s_nop
                continue
            weakened += 1
            less = b"".join([*code[:i], nops(instruction[0]), *code[i + 1 :]])
            found += len(check(less)) > len(present)
    # Not found: where a rule of the manual reports the place already, or a scalar instruction has
    # overwritten the SGPR in between.
    assert weakened > 500
    assert found >= 0.99 * weakened


# What LLVM does not know, from the tables of the ISA manual: first, then, wait states, rule.
MANUAL = [
    ("v_cmp_eq_u32_e32 vcc, v0, v1", "v_mov_b32_e32 v2, src_vccz", 5, "valu-zero-flag"),
    ("v_cmpx_eq_u32_e32 vcc, v0, v1", "v_mov_b32_e32 v2, src_execz", 5, "valu-zero-flag"),
    ("s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS), 1", "s_rfe_b64 s[0:1]", 1, "setreg-trapsts-rfe"),
    ("s_setreg_b32 hwreg(HW_REG_MODE), s0", "v_mov_b32_e32 v2, v3", 2, "setreg-vskip-vector"),
    ("s_setreg_b32 hwreg(HW_REG_MODE), s0", "ds_read_b32 v2, v3", 2, "setreg-vskip-vector"),
    ("s_setvskip s0, s1", "s_getreg_b32 s2, hwreg(HW_REG_MODE, 0, 4)", 2, "setvskip-getreg"),
    *(
        (f"buffer_{op} v[0:3], v4, s[0:3], {offset} offen", "v_mov_b32_e32 v2, v4", wait, rule)
        for op in ("store_dwordx4", "atomic_cmpswap_x2")
        for offset, wait, rule in (
            ("s4", 1, "wide-store-offset-valu"),
            ("m0", 1, "wide-store-offset-valu"),
            ("0", 2, "wide-store-valu"),
            ("64", 2, "wide-store-valu"),
        )
    ),
    (
        "buffer_store_dwordx3 v[0:2], v4, s[0:3], s4 offen",
        "v_mfma_f32_4x4x4_16b_bf16 v[0:3], v[8:9], v[10:11], 0",
        1,
        "wide-store-offset-valu",
    ),
    # One accumulator: of one instruction there is no wait.
    ("v_mfma_f32_16x16x16_bf16 v[0:3], v[8:9], v[10:11], v[0:3]",
     "v_mfma_f32_16x16x16_f16 v[0:3], v[8:9], v[10:11], v[0:3]", 5, "xdl-c"),
    ("s_mov_b32 m0, s0", "s_ttracedata", 1, "m0-message"),
    ("s_add_u32 m0, s0, s1", "ds_gws_init v0 gds", 1, "m0-message"),
    ("s_movk_i32 m0, 0x100", "ds_write_addtid_b32 v0", 1, "m0-lds"),
    ("s_mov_b32 m0, s0", "s_movreld_b64 s[2:3], s[4:5]", 1, "m0-movrel"),
    ("v_div_scale_f32 v0, vcc, v1, v1, v2", "v_div_fmas_f64 v[4:5], v[6:7], v[6:7], v[6:7]", 4,
     "valu-vcc-div-fmas"),
    ("v_mfma_f32_4x4x1_16b_f32 v[0:3], v4, v5, v[0:3]",
     "v_mfma_f32_4x4x1_16b_f32 v[0:3], v4, v5, v[0:3]", 2, "sgemm-c-same"),
    ("v_mfma_f32_16x16x16_bf16 a[0:3], v[4:5], v[6:7], a[0:3]", "v_accvgpr_read_b32 v0, a3", 7,
     "xdl-valu"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then", "wait", "rule"), MANUAL)
def test_manual(check: Checker, first: str, then: str, wait: int, rule: str) -> None:
    head, tail = assemble([first, then])
    assert check(head + nops(wait) + tail) == []
    found = check(head + nops(wait - 1) + tail)
    assert [(f.kind, f.rule, f.producer_pc) for f in found] == [("hazard", rule, 0)]
    assert found[0].pc == len(head + nops(wait - 1))


# The same of gfx950; f8f6f4 takes half as long without an 8-bit operand.
MANUAL_950 = [
    ("v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:31], 0", "v_mov_b32_e32 v40, v15", 20,
     "xdl-valu"),
    ("v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:19], v[24:27], 0 cbsz:4 blgp:4",
     "v_mov_b32_e32 v40, v15", 12, "xdl-valu"),
    ("v_mfma_f64_16x16x4_f64 v[0:7], v[16:17], v[18:19], 0",
     "v_mfma_f64_16x16x4_f64 v[20:27], v[0:1], v[18:19], 0", 19, "dgemm16-ab"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then", "wait", "rule"), MANUAL_950)
def test_manual_of_gfx950(first: str, then: str, wait: int, rule: str) -> None:
    check = Checker("gfx950")
    head, tail = assemble([first, then], "gfx950")
    assert check(head + nops(wait) + tail) == []
    found = check(head + nops(wait - 1) + tail)
    assert [(f.kind, f.rule, f.producer_pc) for f in found] == [("hazard", rule, 0)]


NONE = [
    ("s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), s0", "s_getreg_b32 s1, hwreg(HW_REG_TRAPSTS)"),
    ("s_setreg_b32 hwreg(HW_REG_MODE, 0, 28), s0", "v_mov_b32_e32 v2, v3"),
    ("buffer_store_dwordx4 v[0:3], v4, s[0:3], s4 offen", "v_mov_b32_e32 v5, v4"),
    ("buffer_store_dwordx2 v[0:1], v4, s[0:3], s4 offen", "v_mov_b32_e32 v1, v4"),
    ("buffer_store_dwordx2 v[0:1], v4, s[0:3], 0 offen", "v_mov_b32_e32 v1, v4"),
    ("s_mov_b64 vcc, s[0:1]", "v_div_fmas_f32 v0, v1, v2, v3"),
    ("s_mov_b64 exec, s[0:1]", "v_mov_b32_dpp v0, v1 row_shr:1 row_mask:0xf bank_mask:0xf"),
    ("s_mov_b32 s0, s1", "buffer_load_dword v0, v1, s[0:3], 0 offen"),
    ("v_exp_f32_e32 v0, v1", "v_log_f32_e32 v2, v0"),
    ("v_exp_f32_e32 v0, v1", "global_store_dword v[2:3], v0, off"),
    ("v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]",
     "v_mfma_f32_32x32x8_f16 v[0:15], v[20:21], v[22:23], v[0:15]"),
    ("v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], 0", "v_add_f32_e32 v16, v17, v18"),
]  # fmt: skip


@pytest.mark.parametrize(("first", "then"), NONE)
def test_no_hazard(check: Checker, first: str, then: str) -> None:
    assert check(b"".join(assemble([first, then]))) == []


def test_every_instruction_is_a_wait_state(check: Checker) -> None:
    between = ["s_waitcnt vmcnt(0)", "v_mov_b32_e32 v9, 0", "s_barrier", "s_cmp_eq_u32 s0, s1"]
    code = assemble(["v_readfirstlane_b32 s4, v0", *between, "s_nop 0"])
    (load,) = assemble(["global_load_dword v1, v2, s[4:5]"])
    assert check(b"".join(code) + load) == []
    (found,) = check(b"".join(code[:-1]) + load)
    assert (found.rule, found.where) == ("valu-sgpr-vmem", "s4")


def test_scalar_overwrite_ends_the_hazard(check: Checker) -> None:
    mask = "s_and_b32 s5, s5, 0xffff"
    first, over, then = assemble(
        ["v_readlane_b32 s5, v0, 3", mask, "buffer_load_dword v1, v2, s[4:7], 0 offen"]
    )
    assert [f.where for f in check(first + then)] == ["s5"]
    assert check(first + over + then) == []
    both, low = assemble(["v_cmp_eq_u32_e64 s[4:5], v0, v1", "s_mov_b32 s4, 0"])
    assert [f.where for f in check(both + low + then)] == ["s5"]


def test_back_edge(check: Checker) -> None:
    code = assemble(
        ["v_add_f32_e32 v16, v0, v16", "s_nop 15",
         "v_mfma_f32_32x32x8_f16 v[0:15], v[18:19], v[20:21], 0", "s_nop 2", "s_cbranch_scc1 65530",
         "s_endpgm"]
    )  # fmt: skip
    (found,) = check(b"".join(code))
    assert (found.pc, found.producer_pc, found.where, found.rule) == (0, 8, "v0", "xdl-valu")


@pytest.mark.parametrize("end", ["s_endpgm", "s_branch 0", "s_setpc_b64 s[0:1]"])
def test_code_behind_an_end_is_looked_at(check: Checker, end: str) -> None:
    """The next function of a code object, whose first instruction follows nothing."""
    first, last, then = assemble(["v_readlane_b32 s5, v0, 3", end, "s_load_dword s6, s[4:5], s5"])
    (load,) = assemble(["buffer_load_dword v1, v2, s[4:7], 0 offen"])
    (found,) = check(last + then + first + load)
    assert (found.where, found.producer_pc) == ("s5", len(last + then))
    if end != "s_branch 0":  # a branch to there comes from before
        assert check(first + last + load) == []


def test_each_producer_is_named(check: Checker) -> None:
    # The first feeds A (11), the second B (2).
    code = assemble(
        ["v_mfma_f32_32x32x8_f16 a[0:15], v[16:17], v[18:19], 0", "v_mov_b32_e32 v20, v21",
         "v_mfma_f32_4x4x4_16b_f16 a[16:19], a[14:15], v[20:21], 0"]
    )  # fmt: skip
    found = check(b"".join(code))
    assert [(f.producer_pc, f.where, f.rule) for f in found] == [
        (0, "a[14:15]", "xdl-ab"),
        (8, "v20", "valu-mfma"),
    ]


@pytest.mark.parametrize("branch", ["s_cbranch_execz", "s_cbranch_scc1"])
def test_a_branch_that_no_lane_takes(check: Checker, branch: str) -> None:
    """Without lanes a VALU writes no register whose data a store may still read."""
    code = assemble(
        ["v_mov_b32_e32 v2, v9", "s_nop 7", "global_store_dwordx4 v[0:1], v[2:5], off",
         f"{branch} 65531", "s_endpgm"]
    )  # fmt: skip
    assert [found.rule for found in check(b"".join(code))] == (
        [] if branch == "s_cbranch_execz" else ["wide-store-valu"]
    )


def test_shipped_code_objects_have_none(check_of: Checker) -> None:
    check = check_of
    for name, image in code_objects(check.cpu).items():
        text = ELFFile(io.BytesIO(image)).get_section_by_name(".text").data()
        # Advice is what LLVM alone pads; asm_src/isa/ordered.h keeps the distances of the manual.
        found = [hazard for hazard in check(text) if hazard.kind != "hazard_advice"]
        assert found == [], name


def test_page_is_current() -> None:
    assert PAGE.read_text() == render(hazard_rules(library_path())), "run build_scripts.hazards"
