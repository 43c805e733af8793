"""What is known of EXEC between two instructions, held against cases worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.checker_mutation import backward_idioms, decode_idioms
from benchmarks.checker_mutation.generate import mutants
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.masks import restored_at_once, shrinks
from tests.support.isa.assembler import assemble
from tests.support.vdev_library import DEFAULT_CPU


def code(texts: Sequence[str]) -> KernelCode:
    """Bare instructions; branches give their distance in dwords."""
    return KernelCode(b"".join(assemble([*texts, "s_endpgm"], DEFAULT_CPU)), "", DEFAULT_CPU)


def _restored(*texts: str) -> bool:
    """Of the last instruction but one."""
    kernel = code(texts)
    return restored_at_once(kernel, kernel.instructions[len(texts) - 2])


_OUTER, _INNER = "s_and_saveexec_b64 s[2:3], vcc", "s_and_saveexec_b64 s[4:5], s[8:9]"
_BOTH = ("s_or_b64 exec, exec, s[4:5]", "s_or_b64 exec, exec, s[2:3]")


def test_an_outer_mask_is_restored_behind_an_inner_one() -> None:
    assert _restored(_OUTER, _INNER, *_BOTH)
    assert _restored(_OUTER, "s_cbranch_execz 3", _INNER, "s_cbranch_execz 0", *_BOTH)


def test_masks_between_are_parts_of_the_outer_one() -> None:
    between = (
        *("s_and_saveexec_b64 s[6:7], s[10:11]", "s_xor_b64 s[6:7], exec, s[6:7]"),
        *("s_andn2_saveexec_b64 s[6:7], s[6:7]", "s_or_b64 exec, exec, s[6:7]"),
    )
    assert _restored(_OUTER, *between, _INNER, *_BOTH)
    assert _restored(_OUTER, _INNER, *between, *_BOTH)


_LOOP = (
    *("v_cmp_lt_u32 s[8:9], v0, v1", "s_or_b64 s[4:5], s[8:9], s[4:5]"),
    *("s_andn2_b64 exec, exec, s[4:5]", "s_cbranch_execnz -5"),
)


def test_lanes_that_a_loop_has_ended_for_are_restored() -> None:
    begin, (inner, outer) = "s_mov_b64 s[4:5], 0", _BOTH
    assert _restored(_OUTER, begin, *_LOOP, *_BOTH)
    assert not _restored(_OUTER, "s_mov_b64 s[4:5], -1", *_LOOP, *_BOTH)
    kernel = code([_OUTER, begin, *_LOOP, inner, "s_branch 1", "s_nop 0", outer])
    restore = next(i for i in kernel.instructions if i.text == inner)
    assert restored_at_once(kernel, restore)  # where a branch leads


@pytest.mark.parametrize(
    "texts",
    [
        (_INNER, _OUTER, *_BOTH),  # the other way around
        # The mask of the lanes that have been, not of those that come.
        ("s_andn2_saveexec_b64 s[2:3], s[2:3]", _INNER, *_BOTH),
        ("s_or_saveexec_b64 s[2:3], s[2:3]", _INNER, *_BOTH),
        (_OUTER, "s_mov_b64 exec, -1", _INNER, *_BOTH),
        (_OUTER, "s_or_b64 exec, exec, s[10:11]", _INNER, *_BOTH),
        (_OUTER, _INNER, "s_mov_b64 s[4:5], -1", *_BOTH),
        (_OUTER, _INNER, "s_mov_b64 s[2:3], 0", *_BOTH),
        (_OUTER, "s_xor_b64 s[4:5], exec, s[10:11]", *_BOTH),
        # A way around what saves the inner one: it may be of any time before.
        (_OUTER, "s_cbranch_scc0 1", _INNER, *_BOTH),
    ],
)
def test_not_restored_at_once(texts: Sequence[str]) -> None:
    assert not _restored(*texts)


def test_a_loop_may_widen_exec() -> None:
    """Only on ways that do not come by the start again."""
    kernel = code([_OUTER, "s_nop 0", "s_mov_b64 exec, -1", "s_cbranch_scc0 -3"])
    start, end = kernel.instructions[0].pc, kernel.instructions[1].pc
    assert not shrinks(kernel, start, end)
    kernel = code([_OUTER, "s_nop 0", "s_mov_b64 exec, -1", "s_cbranch_scc0 -4"])
    assert shrinks(kernel, start, end)


def _upper(
    column: str,
    *,
    halved: str = "s_lshr_b32 s4, s4, 1",
    compared: str = "v_cmp_le_i32 vcc, s4, v1",
    kernel: str = "d128",
) -> bool:
    texts = (column, halved, compared, "s_and_saveexec_b64 s[2:3], vcc")
    found = code([*texts, "v_mov_b32 v2, 0", "s_or_b64 exec, exec, s[2:3]"])
    (mutant,) = (m for m in mutants(found, False) if "saveexec" in m.what)
    return bool(decode_idioms.argument(f"attn_decode_bf16_{kernel}_q16", found, mutant))


def test_columns_of_the_upper_half() -> None:
    assert _upper("v_or_b32 v1, 64, v0")
    assert _upper("v_or_b32 v1, 0x60, v0")
    assert not _upper("v_or_b32 v1, 32, v0")
    assert not _upper("v_or_b32 v1, v3, v0")
    assert not _upper("v_add_u32 v1, 64, v0")
    assert not _upper("v_or_b32 v1, 64, v0", kernel="d256")
    assert not _upper("v_or_b32 v1, 64, v0", halved="s_lshr_b32 s4, s4, 0")
    in_lanes = "v_lshrrev_b32 v4, 1, v4"
    assert _upper("v_or_b32 v1, 64, v0", halved=in_lanes, compared="v_cmp_ge_i32 vcc, v1, v4")
    assert not _upper("v_or_b32 v1, 64, v0", halved=in_lanes, compared="v_cmp_ge_i32 vcc, v4, v1")
    assert not _upper("v_or_b32 v1, 64, v0", halved=in_lanes, compared="v_cmp_gt_i32 vcc, v1, v4")


_OUTSIDE = "v_bfrev_b32 v9, 1"


def _stored(
    limit: str = "s4", first: str = "v4", then: str = "v5", outside: str = _OUTSIDE, end: str = ""
) -> bool:
    """Two stores of columns, of whose first one the restore of EXEC is dropped."""
    texts = ["v_or_b32 v5, 16, v4"]
    for column, of in ((first, "s4"), (then, limit)):
        texts += [
            *(outside, f"v_cmp_gt_i32 vcc, {of}, {column}", "s_and_saveexec_b64 s[2:3], vcc"),
            *(f"v_add_lshl_u32 v9, v8, {column}, 2", "s_or_b64 exec, exec, s[2:3]"),
            "buffer_store_dwordx4 v[0:3], v9, s[8:11], 0 offen",
        ]
    found = code(texts + [end] * bool(end))
    mutant = next(m for m in mutants(found, False) if m.what.startswith("s_or_b64 exec"))
    return bool(backward_idioms.argument(found, mutant))


def test_lanes_without_a_column_have_none_further_on() -> None:
    assert _stored() and _stored(then="v4")
    assert not _stored(first="v5", then="v4")  # the rows of another tile begin
    assert not _stored(limit="s5")  # another tensor
    assert not _stored(outside="v_mov_b32 v9, 0")
    assert not _stored(then="v6")
    assert not _stored(end="ds_write_b32 v1, v2")
    assert not _stored(end="v_readfirstlane_b32 s6, v1")


def _of_rows(
    *,
    row: str = "v_cndmask_b32_e32 v1, 0, v0, vcc",
    address: str = "v_lshlrev_b32 v2, 3, v1",
    masked: str = "v_mov_b32 v9, 0",
) -> bool:
    """Of `if (row < rows)` around a load of the row, or of the first one."""
    found = code(
        [
            *("v_cvt_i32_f32 v0, v7", "v_cmp_gt_i32 vcc, s4, v0", row, "v_mov_b32 v3, 0", address),
            *("v_lshl_add_u64 v[4:5], v[2:3], 0, s[6:7]", "s_and_saveexec_b64 s[2:3], vcc"),
            *("s_cbranch_execz 3", masked, "global_load_dwordx4 v[10:13], v[4:5], off"),
            *("s_or_b64 exec, exec, s[2:3]", "global_store_dword v14, v15, s[8:9]"),
        ]
    )
    mutant = next(
        m for m in mutants(found, False) if m.kind == "EXEC" and m.what.startswith("s_and_save")
    )
    return bool(decode_idioms.argument("attn_decode_bf16_d128_q64", found, mutant))


def test_rows_that_are_not_there_take_the_first_one() -> None:
    assert _of_rows()
    assert not _of_rows(row="v_cndmask_b32_e32 v1, 1, v0, vcc")
    assert not _of_rows(row="v_cndmask_b32_e64 v1, 0, v0, s[8:9]")
    assert not _of_rows(row="v_mov_b32 v1, v0")
    assert not _of_rows(address="v_lshlrev_b32 v2, 3, v0")
    assert not _of_rows(address="v_add_u32 v2, v0, v1")
    for masked in ("ds_write_b32 v9, v9", "v_readfirstlane_b32 s9, v9"):
        assert not _of_rows(masked=masked)


def _masked(argument: str, first: str, *masked: str) -> str:
    """What is said of `if (argument > v1) ...`; `first` makes s4 of arguments in s5 and s6."""
    offsets = {name: decode_idioms.offset_of(name) for name in ("group", "seqlen_q", argument)}
    found = code(
        [
            f"s_load_dword s4, s[0:1], {offsets[argument]:#x}",
            f"s_load_dword s5, s[0:1], {offsets['group']:#x}",
            f"s_load_dword s6, s[0:1], {offsets['seqlen_q']:#x}",
            *("s_waitcnt lgkmcnt(0)", first, "v_cmp_gt_i32 vcc, s4, v1"),
            *("s_and_saveexec_b64 s[2:3], vcc", *masked, "s_or_b64 exec, exec, s[2:3]"),
            "global_store_dword v14, v15, s[8:9]",
        ]
    )
    mutant = next(
        m for m in mutants(found, False) if m.kind == "EXEC" and m.what.startswith("s_and_save")
    )
    return decode_idioms.argument("attn_decode_bf16_d128_q64", found, mutant)


def test_offsets_of_columns_of_v() -> None:
    offset = "v_mul_lo_u32 v2, v3, s7"
    assert _masked("head_dim_v", "s_nop 0", offset) == decode_idioms.COLUMNS_OF_O
    assert not _masked("head_dim", "s_nop 0", offset)  # of K, which may be no number
    load = "buffer_load_dword v2, v3, s[12:15], 0 offen"
    for more in (load, "v_readfirstlane_b32 s9, v2"):
        assert not _masked("head_dim_v", "s_nop 0", offset, more)


def test_parts_of_rows_that_are_not_there() -> None:
    rows, store = "s_mul_i32 s4, s5, s6", "global_store_dwordx4 v2, v[4:7], s[8:9] sc1"
    assert _masked("head_dim", rows, store) == decode_idioms.KEPT_FOR_NOBODY
    assert not _masked("head_dim", rows, "global_load_dwordx4 v[4:7], v2, s[8:9] sc1")
    assert not _masked("head_dim", rows, store, store.replace(" sc1", ""))
    assert not _masked("head_dim", rows, store.replace("v2,", "v[2:3],").replace("s[8:9]", "off"))
    assert not _masked("head_dim", "s_mul_i32 s4, s5, s5", store)
    assert not _masked("head_dim", "s_nop 0", store)
