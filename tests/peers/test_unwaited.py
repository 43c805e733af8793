"""The reader of unwaited.py against small programs, and shipped kernels, which have none."""

from __future__ import annotations

import pytest

from benchmarks.checker_mutation.code import disassemble
from tests.support.code_objects import code_objects
from tests.support.isa.assembler import assemble
from tests.support.peers.unwaited import Place, instructions_of, unwaited

SHIPPED = [*code_objects("gfx942")][::6]
LOAD, READ = "global_load_dword v1, v[2:3], off", "ds_read_b64 v[4:5], v6"
USES = ("v_add_u32_e32 v9, v1, v8", "v_mfma_f32_4x4x4_16b_f16 a[0:3], v[4:5], v[8:9], 0")


def places(*lines: str) -> list[Place]:
    return list(unwaited(disassemble(b"".join(assemble([*lines, "s_endpgm"])), 0)))


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ((LOAD, USES[0]), ["v1"]),
        ((LOAD, "s_waitcnt vmcnt(0)", USES[0]), []),
        ((LOAD, "s_waitcnt lgkmcnt(0)", USES[0]), ["v1"]),
        ((LOAD, "global_store_dword v[10:11], v8, off", "s_waitcnt vmcnt(1)", USES[0]), []),
        ((LOAD, "global_store_dword v[10:11], v8, off", "s_waitcnt vmcnt(2)", USES[0]), ["v1"]),
        ((LOAD, "global_store_dword v[10:11], v1, off"), ["v1"]),
        ((LOAD, "v_mov_b32_e32 v1, v8", USES[0]), []),
        ((LOAD, "s_branch 1", "s_nop 0", USES[0]), []),
        ((LOAD, "s_cbranch_scc1 1", "s_nop 0", USES[0]), ["v1"]),
        ((READ, USES[1]), ["v4", "v5"]),
        ((READ, "ds_write_b32 v6, v7", "s_waitcnt lgkmcnt(1)", USES[1]), []),
        ((READ, "ds_write_b32 v6, v7", "s_waitcnt lgkmcnt(2)", USES[1]), ["v4", "v5"]),
        ((READ, "s_load_dword s4, s[2:3], 0x0", "s_waitcnt lgkmcnt(1)", USES[1]), ["v4", "v5"]),
        ((READ, "s_barrier", "ds_write_b64 v6, v[4:5]"), ["v4", "v5"]),
    ],
)
def test_small_programs(lines: tuple[str, ...], found: list[str]) -> None:
    assert [place.register for place in places(*lines)] == found


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_kernels_have_none(name: str) -> None:
    assert list(unwaited(instructions_of(code_objects("gfx942")[name]))) == []
