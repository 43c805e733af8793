"""Steps over the columns of a row, held against cases worked out by hand."""

from __future__ import annotations

from benchmarks.checker_mutation import decode_columns
from benchmarks.checker_mutation.equivalence import WaitsOnPaths
from benchmarks.checker_mutation.kernel import KernelCode
from tests.support.isa.assembler import assemble
from tests.support.vdev_library import DEFAULT_CPU

_COLUMN = ("v_bfe_u32 v0, v0, 4, 2", "v_lshlrev_b32 v1, 3, v0")
_BOUND = "s_load_dword s4, s[0:1], 0x10"
_RESTORED = "s_or_b64 exec, exec, s[2:3]"


def code(*texts: str) -> KernelCode:
    """Bare instructions; branches give their distance in dwords."""
    return KernelCode(b"".join(assemble([*texts, "s_endpgm"], DEFAULT_CPU)), "", DEFAULT_CPU)


def _nested(
    *,
    column: tuple[str, ...] = _COLUMN,
    number: str = "32",
    other: str = "s_load_dword s5, s[0:1], 0x10",
    then: str = "v_cmp_gt_i32 vcc, s4, v2",
    between: str = "",
    end: str = "s_or_b64 exec, exec, s[6:7]",
) -> bool:
    """Of the restore between a step of column 0 and one of a later column."""
    kernel = code(
        *(*column, f"v_or_b32 v2, {number}, v1", _BOUND, other),
        *("s_and_saveexec_b64 s[6:7], s[8:9]", "v_cmp_gt_i32 vcc, s4, v1"),
        *("s_and_saveexec_b64 s[2:3], vcc", "v_mov_b32 v3, v4", _RESTORED),
        *[between] * bool(between),
        *(then, "s_and_saveexec_b64 s[2:3], vcc", "v_mov_b32 v3, v4", _RESTORED, end),
        "v_mov_b32 v5, v3",
    )
    inst = next(i for i in kernel.instructions if i.text == _RESTORED)
    return decode_columns.is_nested(kernel, inst)


def test_lanes_of_a_later_step_are_in_the_step_before() -> None:
    assert _nested() and _nested(then="v_cmp_lt_i32 vcc, v2, s4")
    assert _nested(column=("v_and_b32 v1, 24, v0",))
    assert _nested(then="v_cmp_gt_i32 vcc, s4, v1")  # in all of them
    assert not _nested(column=_COLUMN[1:])  # whose bits may be those of the number
    assert not _nested(number="8")
    assert not _nested(number="v4")
    assert not _nested(then="v_cmp_le_i32 vcc, s4, v2")
    assert _nested(then="v_cmp_gt_i32 vcc, s5, v2")  # the same argument
    for other in ("s_load_dword s5, s[0:1], 0x14", "s_load_dword s5, s[2:3], 0x10"):
        assert not _nested(other=other, then="v_cmp_gt_i32 vcc, s5, v2")
    assert not _nested(between="v_mov_b32 v5, 0")  # of the lanes that stay away, too
    assert not _nested(end="v_mov_b32 v6, 0")


def test_columns_that_are_kept_among_the_accumulators() -> None:
    kept = ("v_accvgpr_write_b32 a4, v1", "v_mov_b32 v1, 7", "v_accvgpr_read_b32 v1, a4")
    assert _nested(column=(*_COLUMN, *kept))
    assert not _nested(column=(*_COLUMN, *kept[::2], "v_add_u32 v1, 8, v1"))


def test_code_of_a_step_that_stands_twice() -> None:
    """Where the first step had lanes, and where it had none."""

    def nested(number: str) -> bool:
        kernel = code(
            *(*_COLUMN, "v_or_b32 v2, 32, v1", f"v_or_b32 v3, {number}, v1", "v_or_b32 v4, 64, v1"),
            *(_BOUND, "s_and_saveexec_b64 s[6:7], s[8:9]", "s_cbranch_scc0 3"),
            *("v_cmp_gt_i32 vcc, s4, v2", "s_and_saveexec_b64 s[2:3], vcc", "s_branch 2"),
            *("v_cmp_gt_i32 vcc, s4, v3", "s_and_saveexec_b64 s[2:3], vcc"),
            *("v_mov_b32 v5, v6", _RESTORED, "v_cmp_gt_i32 vcc, s4, v4"),
            *("s_and_saveexec_b64 s[2:3], vcc", "v_mov_b32 v5, v6", _RESTORED),
            "s_or_b64 exec, exec, s[6:7]",
        )
        inst = next(i for i in kernel.instructions if i.text == _RESTORED)
        return decode_columns.is_nested(kernel, inst)

    assert nested("32") and nested("64")
    assert not nested("0x60")  # which has fewer lanes than the later one
    assert not nested("v7")


def test_the_first_step_has_lanes() -> None:
    """So that what it waits for is there for a later one."""

    def kernel(number: str) -> KernelCode:
        return code(
            *(*_COLUMN, f"v_or_b32 v2, {number}, v1", _BOUND, "s_waitcnt lgkmcnt(0)"),
            "global_load_dword v4, v[6:7], off",
            *("v_cmp_gt_i32 vcc, s4, v1", "s_and_saveexec_b64 s[2:3], vcc", "s_cbranch_execz 1"),
            *("s_waitcnt vmcnt(0)", _RESTORED, "v_cmp_gt_i32 vcc, s4, v2"),
            *("s_and_saveexec_b64 s[2:3], vcc", "s_cbranch_execz 1", "v_mov_b32 v3, v4", _RESTORED),
        )

    one, other = kernel("32"), kernel("v5")
    first = next(i for i in one.instructions if i.mnemonic == "s_cbranch_execz")
    assert decode_columns.first_steps(one) == {first.pc: False}
    assert not decode_columns.first_steps(other)
    assert len(WaitsOnPaths(one).too_early()) == 1
    assert not WaitsOnPaths(one, decode_columns.first_steps).too_early()
    assert len(WaitsOnPaths(other, decode_columns.first_steps).too_early()) == 1
