"""Of attention over a cache; what is recognised by what it does is in `decode_idioms`."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.checker_mutation.stated import Stated

_COLUMNS_OF_O = (
    "the lanes that are let in as well load columns of V behind the head's, of the rows that there "
    "are: they come to columns of O that are not stored"
)
_ROWS_THERE = (
    "the lanes that are let in as well are of rows that are not there: they take the first row's "
    "Q, and nobody stores what comes of it"
)
_ZERO_BEFORE = (
    "the lanes that stay away have no column in the next step of Q either, whose registers are "
    "zero for them since before the first; then the mask of the rows is restored"
)
_NESTED_COLUMNS = (
    "the lanes that stay away have no column in this step of the row, and so they have none in the "
    "later ones, which only these loads and stores follow; then the mask of the rows is restored"
)
_SAME_ROW = (
    "the lanes that are let in as well hold the same row, of which they have the same sum and "
    "greatest value: they store the same word to the same address"
)
_ROW_IS_THERE = (
    "no load is under way: waves without pages come here, and they have waited for the number of "
    "their row where they bounded it"
)
_ONLY_THE_WRITE_BACK = (
    "the one operation that may be pending is the write-back itself: parts are written through, "
    "and what it would take along no other workgroup reads"
)
_NEW_K_IS_YOUNGER = (
    "with one load more under way, what it waits for has arrived as well: before it the wave has "
    "loaded new keys, at least one load that is younger and not counted, or has waited for all"
)
_WAITED_BEFORE = (
    "what it would wait for has arrived: the wait of the step before counts less loads of new keys "
    "than there are, at least one that is younger, or the wave has waited for all"
)
_WAITS = ("wait deleted", "wait weakened")
_KERNEL = "attn_decode_bf16_d128_q16"


def _steps(kind: str, reason: str, offset: str, sites: int) -> Iterator[Stated]:
    """Before new keys are loaded over those of the cache, of the columns that the offset names.

    Of the last 16 keys of the second copy the address is made before, and so it waits elsewhere.
    """
    yield Stated(
        *(_KERNEL, kind, reason),
        f"""
          s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
        > s_waitcnt vmcnt(#)
          v_lshlrev_b32 v, 1, v
          v_mov_b32 v, 0
          v_lshl_add_u64 v[2], v[2], 0, v[2]
          global_load_dwordx4 v[4], v[2], off offset:{offset}
        """,
        sites=3 * sites,
    )
    yield Stated(
        *(_KERNEL, kind, reason),
        f"""
          s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_mov_b32 v, 0
        > s_waitcnt vmcnt(#)
          v_lshl_add_u64 v[2], v[2], 0, v[2]
          global_load_dwordx4 v[4], v[2], off offset:{offset}
        """,
        sites=sites,
    )


ARGUMENTS: tuple[Stated, ...] = (
    Stated(
        *(_KERNEL, _WAITS, _ROW_IS_THERE),
        """
          s_ashr_i32 s, s, 31
          s_lshl_b32 s, s, 1
        > s_waitcnt lgkmcnt(0)
          s_ashr_i32 s, s, 31
          s_mul_i32 s, s, s
          s_mul_hi_u32 s, s, s
        """,
    ),
    *_steps("wait weakened", _NEW_K_IS_YOUNGER, "#", sites=3),
    *_steps("wait deleted", _WAITED_BEFORE, "128", sites=1),
    *_steps("wait deleted", _WAITED_BEFORE, "192", sites=1),
    # New values, each of four keys of a lane.
    Stated(
        *(_KERNEL, "wait weakened", _NEW_K_IS_YOUNGER),
        """
          s_ashr_i32 s, s, 31
          v_mad_u64_u32 v[2], s[2], s, v, 0
        > s_waitcnt vmcnt(#)
          v_mov_b32 v, v
          v_mad_u64_u32 v[2], s[2], s, v, v[2]
        """,
        sites=14,
    ),
    Stated(
        *(_KERNEL, "wait weakened", _NEW_K_IS_YOUNGER),
        """
          v_mad_u64_u32 v[2], s[2], s, v, 0
          s_addc_u32 s, s, s
          s_ashr_i32 s, s, 31
        > s_waitcnt vmcnt(#)
          v_mov_b32 v, v
          v_mad_u64_u32 v[2], s[2], s, v, v[2]
        """,
        sites=2,
    ),
    Stated(
        *(_KERNEL, "wait weakened", _ONLY_THE_WRITE_BACK),
        """
          s_cbranch_vccnz
          buffer_wbl2 sc1
        > s_waitcnt vmcnt(0)
          s_barrier
        """,
    ),
    Stated(
        *(_KERNEL, "EXEC", _COLUMNS_OF_O),
        """
          v_cmp_gt_i32 vcc, s, v
          v_mov_b32 v, v
        > s_and_saveexec_b64 s[2], vcc
          v_mul_lo_u32 v, v, s
          v_add_lshl_u32 v, v, v, 1
          s_or_b64 exec, exec, s[2]
        """,
    ),
    Stated(
        *(_KERNEL, "EXEC", _COLUMNS_OF_O),
        """
        > s_and_saveexec_b64 s[2], vcc
          v_or_b32 v, #, v
          v_mul_lo_u32 v, v, s
          v_add_lshl_u32 v, v, v, 1
          s_or_b64 exec, exec, s[2]
        """,
        sites=3,
    ),
    Stated(
        *(_KERNEL, "EXEC", _ROWS_THERE),
        """
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          s_load_dword s, s[2], #
          v_mov_b32 v, 0
        """,
        sites=2,
    ),
    Stated(
        *(_KERNEL, "EXEC", _ZERO_BEFORE),
        """
        > s_or_b64 exec, exec, s[2]
          v_cmp_lt_i32 vcc, v, v
          v_mov_b32 v, v
          v_mov_b32 v, v
          v_mov_b32 v, v
          s_and_saveexec_b64 s[2], vcc
        """,
        sites=2,
    ),
    # Without and with stores of what is appended.
    Stated(
        *(_KERNEL, "EXEC", _NESTED_COLUMNS),
        """
          s_cbranch_vccz
        > s_or_b64 exec, exec, s[2]
          v_cmp_gt_i32 vcc, s, v
          s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
        """,
        sites=12,
    ),
    Stated(
        *(_KERNEL, "EXEC", _NESTED_COLUMNS),
        """
          global_store_dwordx4 v[2], v[4], off
        > s_or_b64 exec, exec, s[2]
          v_cmp_gt_i32 vcc, s, v
          s_and_saveexec_b64 s[2], vcc
          s_cbranch_execnz
        """,
        sites=12,
    ),
    # Of a part, and the logarithm of a whole one.
    Stated(
        *(_KERNEL, "EXEC", _SAME_ROW),
        """
          global_store_dwordx4 v, v[4], s[2] sc1
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          global_store_dwordx2 v, v[2], s[2] sc1
        """,
    ),
    Stated(
        *(_KERNEL, "EXEC", _SAME_ROW),
        """
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          s_load_dwordx2 s[2], s[2], 0x58
          s_waitcnt lgkmcnt(0)
        """,
        sites=2,
    ),
)
