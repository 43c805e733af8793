"""Of tokens of logits by several workgroups a row, and of rotary embeddings."""

from __future__ import annotations

from benchmarks.checker_mutation.stated import Stated

_SLICES, _ROTARY = "sample_slices_fp32", "rotary_norm_bf16_h1"
_GFX942 = ("gfx942",)

_OTHER_WAY = (
    "a lane of the list has loaded its entry or reads it from LDS, by a condition that holds for "
    "the whole launch: here none is loaded, and earlier loads have been waited for"
)
_READ_BEFORE = (
    "what is written after it was last read before an earlier barrier: in between only other "
    "places of LDS are touched"
)
_SAME_WORDS = (
    "the additional lanes store the same words to the same address, before the row is counted, or "
    "when nobody uses it in the rest of the launch"
)
_ALL_LANES = "a digit has as many values as the workgroup has lanes, so none is disabled"
_NOT_GREATER = (
    "the additional lanes compute scores of logits that are minus infinity or do not exist: minus "
    "infinity, or no number, which is no lane's best"
)
_SAME_HEAD = (
    "the additional lanes have read the columns of the head's first lane, and store the same words"
    " where it does"
)
_ALL_STORED = "all results have been stored, and nothing else follows for any lane"

ARGUMENTS = (
    Stated(
        *(_SLICES, ("wait deleted", "wait weakened"), _OTHER_WAY),
        """
          s_andn2_b64 vcc, exec, s[2]
          s_cbranch_vccnz
        > s_waitcnt vmcnt(0)
          ds_read_b64 v[2], v
        """,
    ),
    Stated(
        *(_SLICES, "barrier", _READ_BEFORE),
        """
          v_cmp_gt_i32 vcc, s, v
          v_lshl_add_u64 v[2], v[2], 0, v[2]
        > s_barrier
          v_cndmask_b32 v, 0, v, vcc
        """,
    ),
    Stated(
        *(_SLICES, "barrier", _READ_BEFORE),
        """
          s_waitcnt lgkmcnt(0)
          v_mov_b32_dpp v, v row_shr:2 row_mask:0xf bank_mask:0xf
          v_mov_b32_dpp v, v row_shr:2 row_mask:0xf bank_mask:0xf
          v_lshl_add_u64 v[2], v[2], 0, v[2]
          v_mov_b32 v, v
          v_mov_b32 v, v
        > s_barrier
          v_mov_b32_dpp v, v row_shr:4 row_mask:0xf bank_mask:0xf
        """,
        sites=2,
        which=(1,),
    ),
    Stated(
        *(_SLICES, "barrier", _READ_BEFORE),
        """
          v_mov_b32 v, v
          v_mov_b32 v, v
        > s_barrier
          v_mov_b32_dpp v, v row_shr:8 row_mask:0xf bank_mask:0xf
        """,
    ),
    Stated(
        *(_SLICES, "barrier", _READ_BEFORE),
        """
          s_waitcnt lgkmcnt(0)
          v_cndmask_b32 v, v, v, vcc
          v_cndmask_b32 v, v, v, vcc
          v_mov_b32 v, 0
          v_mov_b32_dpp v, v row_shr:2 row_mask:0xf bank_mask:0xf
          v_mov_b32 v, v
          v_mov_b32_dpp v, v row_shr:2 row_mask:0xf bank_mask:0xf
          v_cmp_gt_u64 vcc, v[2], v[2]
          v_mov_b32 v, 0
        > s_barrier
          v_cndmask_b32 v, v, v, vcc
          v_cndmask_b32 v, v, v, vcc
          v_mov_b32 v, 0
          v_mov_b32_dpp v, v row_shr:4 row_mask:0xf bank_mask:0xf
        """,
    ),
    Stated(
        *(_SLICES, "EXEC", _SAME_WORDS),
        """
          v_cmp_eq_u32 s[2], 0, v
          s_waitcnt lgkmcnt(0)
          s_barrier
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          v_mov_b32 v, 0
        """,
    ),
    Stated(
        *(_SLICES, "EXEC", _SAME_WORDS),
        """
          s_cbranch_scc1
          buffer_inv sc1
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
        """,
    ),
    Stated(
        *(_SLICES, "EXEC", _ALL_LANES),
        """
          s_and_saveexec_b64 s[2], s[2]
          ds_write_b64 v, v[2] offset:192
        > s_or_b64 exec, exec, s[2]
          s_waitcnt lgkmcnt(0)
        """,
        sites=2,
    ),
    Stated(
        *(_SLICES, "EXEC", _NOT_GREATER),
        """
          s_and_b64 s[2], s[2], vcc
          v_mov_b32 v, 0xff800000
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          v_xor_b32 v, s, v
          v_xor_b32 v, v, v
          v_cvt_f32_u32 v, v
        """,
        sites=2,
    ),
    Stated(
        *(_ROTARY, "EXEC", _SAME_HEAD),
        """
          v_perm_b32 v, v, v, s
          s_or_b64 exec, exec, s[2]
        > s_and_b64 exec, exec, s[2]
          s_cbranch_execz
          s_waitcnt lgkmcnt(0)
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_ROTARY, "EXEC", _ALL_STORED),
        """
          global_store_dwordx4 v[2], v[4], off
          global_store_dwordx4 v[2], v[4], off offset:16
        > s_or_b64 exec, exec, s[2]
          s_mov_b64 s[2], 0
          s_andn2_b64 vcc, exec, s[2]
        """,
    ),
)
