"""Real code: HIP programs compiled here, and AITER's kernels where a checkout is named."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from build_scripts.toolchain import LLVM22, compile_hip
from tests.support.isa.assembler import assemble_source
from tests.support.isa.code_objects import code_sections, misdecoded
from tests.support.isa.disassembler import Disassembler

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.hip"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_compiled_code_has_the_assemblers_text(disassembler: Disassembler, program: Path) -> None:
    compiled = compile_hip(program, LLVM22)
    instructions = [a for a in assemble_source(compiled.assembly) if a.encoding]
    assert len(instructions) > 50
    windows = np.zeros((len(instructions), 3), np.uint32)
    for window, instruction in zip(windows, instructions, strict=True):
        assert instruction.encoding is not None
        words = np.frombuffer(instruction.encoding, "<u4")
        window[: words.size] = words
    wrong = [
        (instruction.text, decoded)
        for instruction, decoded in zip(instructions, disassembler.decode(windows), strict=True)
        if decoded.text != instruction.text or decoded.size * 4 != len(instruction.encoding or b"")
    ]
    assert not wrong, wrong[:10]
    # The linked object, padding included, is nothing but instructions.
    for section in code_sections(compiled.code_object):
        refused = [d for d in disassembler.disassemble(section.words) if d.size == 0]
        assert not refused


def test_programs_use_the_formats() -> None:
    """The programs above are worth compiling only while they reach these instructions."""
    text = "\n".join(compile_hip(program, LLVM22).assembly for program in PROGRAMS)
    wanted = (
        "v_mfma_ v_pk_ ds_ global_ buffer_ scratch_ s_load_ _dpp _sdwa v_cmp s_getreg v_div_scale"
    )
    wanted += " v_accvgpr_ global_atomic_ s_swappc v_exp_f32 v_mad_u64_u32 v_fma_f64 s_cbranch"
    assert [w for w in wanted.split() if w not in text] == []


@pytest.mark.slow
@pytest.mark.skipif("AMDATTN_AITER_DIR" not in os.environ, reason="names no checkout of AITER")
def test_aiter(disassembler: Disassembler) -> None:
    files = sorted(Path(os.environ["AMDATTN_AITER_DIR"]).rglob("gfx942/**/*.co"))
    assert files
    wrong = misdecoded(disassembler, files)
    assert not wrong, wrong[:10]
