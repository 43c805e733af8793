"""Of attention over a cache; what is recognised by what it does is in `decode_idioms`."""

from __future__ import annotations

from benchmarks.checker_mutation.decode_idioms import NESTED_COLUMNS
from benchmarks.checker_mutation.stated import Stated

COLUMNS_OF_O = (
    "the lanes that are let in as well load columns of V behind the head's, of the rows that there "
    "are: they come to columns of O that are not stored"
)
_ROWS_THERE = (
    "the lanes that are let in as well are of rows that are not there: they take the first row's "
    "Q, and nobody stores what comes of it"
)
_FIRST_PAGE = (
    "what it would wait for has arrived: the first lane looks up the page of a key that is before "
    "the end, or the wave would not be here, so that the wave has waited to tell whether there is "
    "such a page"
)
_LATER_TURN = (
    "no wave comes here: this hides keys of a later turn, which are 128 behind the first ones at "
    "least, and less than 16 of these are seen by no query; where more are, they are new ones, "
    "which other code attends to"
)
_KERNEL = "attn_decode_bf16_d128_q16"

ARGUMENTS: tuple[Stated, ...] = (
    # New values, each of four keys of a lane.
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
        *(_KERNEL, "EXEC", NESTED_COLUMNS),
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
        *(_KERNEL, "EXEC", COLUMNS_OF_O),
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
        *(_KERNEL, "EXEC", COLUMNS_OF_O),
        """
        > s_and_saveexec_b64 s[2], vcc
          v_or_b32 v, #, v
          v_mul_lo_u32 v, v, s
          v_add_lshl_u32 v, v, v, 1
          s_or_b64 exec, exec, s[2]
        """,
        sites=3,
    ),
    # Pages of a later turn, of what is appended, and again of the first turn behind that.
    Stated(
        *(_KERNEL, ("wait deleted", "wait weakened"), _FIRST_PAGE),
        """
          s_trap 3
          s_load_dwordx2 s[2], s[2], 0x170
          s_load_dwordx2 s[2], s[2], 0x128
        > s_waitcnt vmcnt(0)
          v_max_i32 v, 0, v
        """,
        sites=3,
    ),
    # Keys of V that no query sees: of first turns, of later ones, of what is appended.
    Stated(
        *(_KERNEL, ("wait deleted", "wait weakened"), _LATER_TURN),
        """
          v_cmp_lt_i32 vcc, #, v
        > s_waitcnt vmcnt(#)
          s_nop 0
          v_cndmask_b32 v, v, 0, vcc
          v_cndmask_b32 v, v, 0, vcc
        """,
        sites=22,
        which=(7, 8, 9, 10, 11, 12, 13),
    ),
    Stated(
        *(_KERNEL, ("wait deleted", "wait weakened"), _LATER_TURN),
        """
          v_cmp_lt_i32 vcc, 3, v
          v_add_u32 v, -16, v
        > s_waitcnt vmcnt(24)
          v_cndmask_b32 v, v, 0, vcc
        """,
    ),
)
