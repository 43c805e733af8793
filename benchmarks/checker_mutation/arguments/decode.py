"""Of attention over a cache; what is recognised by what it does is in `decode_idioms`."""

from __future__ import annotations

from benchmarks.checker_mutation.stated import Stated

_COLUMNS_OF_O = (
    "the lanes that are let in as well load columns of V behind the head's, of the rows that there "
    "are: they come to columns of O that are not stored"
)
_NESTED_COLUMNS = (
    "the lanes that stay away have no column in this step of the row, and so they have none in the "
    "later ones, which only these loads and stores follow; then the mask of the rows is restored"
)
_NEW_K_IS_YOUNGER = (
    "with one load more under way, what it waits for has arrived as well: before it the wave has "
    "loaded new keys, at least one load that is younger and not counted, or has waited for all"
)
_WAITED_BEFORE = (
    "what it would wait for has arrived: lanes are turned in this step of the row only where all "
    "lanes were in the step before, which waited for all; what is younger are loads of the other "
    "lanes to the same registers"
)
_ROWS_THERE = (
    "the lanes that are let in as well are of rows that are not there: they take the first row's "
    "Q, and nobody stores what comes of it"
)
_TOUCHED = (
    "the lanes that stay away keep what they have in registers that a later segment only touches, "
    "and the mask that is restored behind those has every lane"
)
_KERNEL = "attn_decode_bf16_d128_q16"

# Of new keys that are turned, in a later step of the row.
_AT_192 = """
      global_load_dwordx4 v[4], v[2], off offset:192
      s_andn2_saveexec_b64 s[2], s[2]
      s_cbranch_execz
      v_mov_b32 v, v
      s_load_dword s, s[2], 0x16c
      s_load_dwordx2 s[2], s[2], 0x78
      v_ashrrev_i32 v, 31, v
    > s_waitcnt vmcnt(0)
      v_lshl_add_u64 v[2], v[2], 1, v[2]
      global_load_dwordx4 v[4], v[2], off
"""

ARGUMENTS: tuple[Stated, ...] = (
    Stated(_KERNEL, ("wait deleted", "wait weakened"), _WAITED_BEFORE, _AT_192, sites=4),
    Stated(
        *(_KERNEL, ("wait deleted", "wait weakened"), _WAITED_BEFORE),
        _AT_192.replace("192", "128"),
        sites=3,
        archs=("gfx950",),
    ),
    Stated(
        *(_KERNEL, "wait weakened", _WAITED_BEFORE),
        """
          global_load_dwordx4 v[4], v[2], off offset:64
          s_andn2_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          v_mov_b32 v, v
          s_load_dword s, s[2], 0x16c
          v_ashrrev_i32 v, 31, v
        > s_waitcnt vmcnt(0)
          v_lshl_add_u64 v[2], v[2], 1, v[2]
          global_load_dwordx4 v[4], v[2], off
        """,
    ),
    Stated(
        *(_KERNEL, "wait weakened", _WAITED_BEFORE),
        """
          global_load_dwordx4 v[4], v[2], off offset:64
          s_andn2_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          v_mov_b32 v, v
          s_load_dword s, s[2], 0x16c
          s_load_dwordx2 s[2], s[2], 0x78
          v_ashrrev_i32 v, 31, v
        > s_waitcnt vmcnt(0)
          v_lshl_add_u64 v[2], v[2], 1, v[2]
          global_load_dwordx4 v[4], v[2], off
        """,
        sites=3,
    ),
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
        sites=12,
    ),
    Stated(
        *(_KERNEL, "EXEC", _ROWS_THERE),
        """
          v_cvt_i32_f32 v, v
          v_cmp_gt_i32 vcc, s, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          s_load_dwordx2 s[2], s[2], 0x130
        """,
    ),
    # Of Q, that is turned.
    Stated(
        *(_KERNEL, "EXEC", _NESTED_COLUMNS),
        """
          v_cmp_lt_i32 vcc, v, v
          s_and_saveexec_b64 s[2], vcc
          s_cbranch_execnz
        > s_or_b64 exec, exec, s[2]
          v_cmp_lt_i32 vcc, v, v
          s_and_saveexec_b64 s[2], vcc
          s_cbranch_execnz
        """,
        sites=2,
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
    # Nothing is near of a segment behind the first.
    Stated(
        *(_KERNEL, "EXEC", _TOUCHED),
        """
          global_store_dwordx4 v[2], v[4], off
        > s_or_b64 exec, exec, s[2]
          s_nop 0
          v_mov_b32 v, 0
          v_mov_b32 v, 0
          v_mov_b32 v, 0
          s_or_b64 exec, exec, s[2]
          v_readfirstlane_b32 s, v
        """,
    ),
)
