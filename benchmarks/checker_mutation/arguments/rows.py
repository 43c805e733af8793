"""Of root mean square norms and of states that are merged, a row for a wave."""

from __future__ import annotations

from benchmarks.checker_mutation.stated import Stated

_ALL_STORED = "all results have been stored, and nothing else follows for any lane"
_SAME_ROW = (
    "the additional lanes hold the same row, with the same sum and maximum: they store the same "
    "word to the same address"
)
_LAST_CHUNK = (
    "the additional lanes also hold the last chunk of the row, from the same addresses and with "
    "the same sum: they store the same words to its last columns once more"
)
_ROW_ENDED = (
    "the row ends in this step for the disabled lanes, so they have no columns in the later one; "
    "only its stores follow, and a wave without lanes then reaches the end, too"
)
_ENDS = (
    "all results have been stored: a wave with active lanes ends by the next branch, and one "
    "without by the branches after it, which test masks of EXEC"
)
_NOT_FROM_THERE = (
    "the loads that it would wait for belong to the code for a residual, from which waves go to "
    "the end: with active lanes by a branch on EXEC, without by branches on masks of EXEC, which "
    "are 0. Waves that reach this have two loads pending, which it allows"
)

_NEXT_ROW = (
    "the additional lanes, for which no row of the workgroup is left, hold the first columns of "
    "the next row: they store the same words there as the next workgroup, and after the last row "
    "the next test disables them"
)
_NONE_ANYWAY = (
    "the additional lanes have a distance between parts that is no number: whatever they compute "
    "from it, their results are replaced by no number before they are stored"
)

_FIRST_LANE = (
    "with one more operation pending, what it waits for has arrived as well: every wave has the "
    "first lane of a row, whose store of lse is younger and not counted"
)

_NORM, _MERGE = "rms_norm_bf16_c4096_l256", "merge_state_bf16_b8"
_MERGE_TWO = "merge_state_bf16_b16_s2"  # two rows of a lane
_CASCADE = "cascade_merge_bf16"

ARGUMENTS = (
    Stated(
        *(_NORM, ("wait deleted", "wait weakened"), _NOT_FROM_THERE),
        """
          v_or_b32 v, 0x800, v
        > s_waitcnt vmcnt(2)
          v_min_u32 v, s, v
          v_lshlrev_b32 v, 1, v
        """,
    ),
    Stated(
        *(_NORM, "EXEC", _LAST_CHUNK),
        """
          v_cmp_lt_i32 vcc, 0, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_cndmask_b32 v, 0, 1, s[2]
        """,
        sites=2,
    ),
    Stated(
        *(_NORM, "EXEC", _LAST_CHUNK),
        """
          v_cmp_lt_i32 vcc, 0, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          s_andn2_b64 vcc, exec, s[2]
        """,
        sites=2,
    ),
    Stated(
        *(_NORM, "EXEC", _ROW_ENDED),
        """
          global_store_short_d16_hi v[2], v, off offset:2
        > s_or_b64 exec, exec, s[2]
          s_or_saveexec_b64 s[2], s[2]
          v_mov_b32 v, v
        """,
        sites=2,
    ),
    Stated(
        *(_NORM, "EXEC", _ROW_ENDED),
        """
          global_store_dwordx4 v[2], v[4], off
        > s_or_b64 exec, exec, s[2]
          s_nop 0
          v_lshlrev_b32 v, 16, v
        """,
        sites=2,
    ),
    Stated(
        *(_NORM, "EXEC", _ENDS),
        """
          global_store_short_d16_hi v[2], v, off offset:2
        > s_or_b64 exec, exec, s[2]
          s_andn2_saveexec_b64 s[2], s[2]
          s_cbranch_execz
        """,
        sites=2,
    ),
    Stated(
        *(_NORM, "EXEC", _ENDS),
        """
          global_store_dwordx4 v[2], v[4], off
        > s_or_b64 exec, exec, s[2]
          s_branch
          v_lshlrev_b32 v, 3, v
        """,
    ),
    # Of as many states, where the lse is stored.
    Stated(
        *(_MERGE, "EXEC", _SAME_ROW),
        """
          global_store_dwordx2 v[2], v[2], off
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          s_mul_hi_i32 s, s, s
        """,
        sites=8,
    ),
    Stated(
        *(_MERGE, "EXEC", _SAME_ROW),
        """
          v_cmp_eq_u32 vcc, 0, v
          global_store_dwordx2 v[2], v[2], off
        > s_and_b64 exec, exec, vcc
          s_cbranch_execz
        """,
    ),
    Stated(
        *(_MERGE, "EXEC", _ALL_STORED),
        """
          global_store_dword v[2], v, off
        > s_or_b64 exec, exec, s[2]
          s_mov_b64 s[2], 0
          s_andn2_b64 vcc, exec, s[2]
        """,
        sites=7,
    ),
    Stated(
        *(_MERGE, "EXEC", _ALL_STORED),
        """
          global_store_dword v[2], v, off
        > s_or_b64 exec, exec, s[2]
          s_mov_b64 s[2], 0
          s_and_b64 vcc, exec, s[2]
        """,
    ),
    Stated(
        *(_MERGE_TWO, "EXEC", _SAME_ROW),
        """
          v_cmp_eq_u32 vcc, 0, v
          global_store_dwordx4 v[2], v[4], off
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_mul_f32 v, 0x33800000, v
        """,
        sites=8,
    ),
    Stated(
        *(_MERGE_TWO, "EXEC", _SAME_ROW),
        """
          v_cmp_eq_u32 s[2], 0, v
          global_store_dwordx4 v[2], v[4], off
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          v_mul_f32 v, 0x33800000, v
        """,
    ),
    Stated(
        *(_MERGE_TWO, "EXEC", _SAME_ROW),
        """
          global_store_dwordx4 v[2], v[4], off
        > s_and_b64 exec, exec, vcc
          s_cbranch_execz
          v_mul_f32 v, 0x33800000, v
        """,
        sites=8,
    ),
    Stated(
        *(_MERGE_TWO, "EXEC", _SAME_ROW),
        """
          global_store_dwordx4 v[2], v[4], off
        > s_and_b64 exec, exec, s[2]
          s_cbranch_execz
          v_mul_f32 v, 0x33800000, v
        """,
    ),
    Stated(
        *(_MERGE_TWO, "EXEC", _ALL_STORED),
        """
          global_store_dword v[2], v, off
        > s_or_b64 exec, exec, s[2]
          s_mov_b64 s[2], 0
          s_andn2_b64 vcc, exec, s[2]
        """,
        sites=3,
    ),
    Stated(
        *(_MERGE_TWO, "EXEC", _ALL_STORED),
        """
          global_store_dword v[2], v, off
        > s_or_b64 exec, exec, s[2]
          s_mov_b64 s[2], 0
          s_and_b64 vcc, exec, s[2]
        """,
        sites=5,
    ),
    Stated(
        *(_MERGE_TWO, "wait weakened", _FIRST_LANE),
        """
          v_cmp_neq_f32 s[2], s, v
          v_cmp_neq_f32 s[2], 0, v
          s_waitcnt vmcnt(5)
          v_cndmask_b32 v, 0, v, s[2]
        > s_waitcnt vmcnt(1)
          v_cndmask_b32 v, 0, v, s[2]
        """,
    ),
    Stated(
        *(_MERGE_TWO, "wait weakened", _FIRST_LANE),
        """
          v_cmp_neq_f32 s[2], s, v
          v_cmp_neq_f32 s[2], 0, v
        > s_waitcnt vmcnt(4)
          v_cndmask_b32 v, 0, v, s[2]
        """,
    ),
    Stated(
        *(_MERGE_TWO, "wait weakened", _FIRST_LANE),
        """
          v_cmp_neq_f32 s[2], s, v
          v_cmp_neq_f32 s[2], 0, v
        > s_waitcnt vmcnt(7)
          v_cndmask_b32 v, 0, v, s[2]
        """,
    ),
    Stated(
        *(_CASCADE, "EXEC", _NEXT_ROW),
        """
          v_cmp_gt_u32 vcc, s, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          s_load_dwordx2 s[2], s[2], 0x88
        """,
    ),
    Stated(
        *(_CASCADE, "EXEC", _NONE_ANYWAY),
        """
          v_mov_b64 v[2], v[2]
        > s_and_saveexec_b64 s[2], s[2]
          s_xor_b64 s[2], exec, s[2]
          s_cbranch_execz
        """,
    ),
)
