"""Of attention's gradients: the launches around blocks of keys."""

from __future__ import annotations

from benchmarks.checker_mutation.stated import Stated

_DIVIDED = (
    "the additional lanes divide by more than they have: the quotient is 0, and the remainder is "
    "the dividend"
)
_NOT_THERE = (
    "the additional lanes treat a row after the last one as one to be summed: they read the last "
    "one in its place, and store no row that does not exist"
)
_NOTHING_SUMMED = "the additional lanes store nothing: none of their rows is summed"
_A_BATCH = (
    "no wave reaches this from code that has not waited: there is at least one batch entry, and "
    "its loop has waited"
)
_SAME_SUM = (
    "the additional lanes hold the same sum: they store the same word to the same address, which "
    "nobody else uses in the rest of the launch"
)
_FIRST_ONLY = (
    "what follows concerns the first lane of a workgroup, which is not among the disabled ones"
)
_TILES = (
    "the mask already has every lane: the first 16 rows of a workgroup are in one tile, which has "
    "16 or 32"
)
_ONE_TILE = "the mask already has every lane: the 32 rows of a workgroup are one tile"
_STRICTER = (
    "the additional lanes have nothing to do before the next mask, which asks for a later column "
    "and excludes them"
)
_ROW_ENDED = (
    "the row ends in this step for the disabled lanes, so they have no columns in later steps; "
    "only the stores of those follow, and then the mask of the rows is restored"
)
_A_ROW = (
    "no wave reaches this: a wave has all 16 lanes of each of its rows, the first one and others, "
    "so the branch before it is taken where it has to be"
)
_LAST_TWO = (
    "what follows concerns the first two lanes of a row, which are not among the disabled ones"
)

_COLUMNS_BEHIND = (
    "what it would wait for has arrived: after it, a wave loads columns of out and dout of each of"
    " its rows, and waits for these"
)
_SAME_WORK = (
    "the additional lanes hold the same words, in scalar registers: they store these to the same "
    "addresses, before the barrier after which all waves read them"
)
_ALL_SET = "the mask already has every lane: each lane of a workgroup has something to set to zero"
_BEHIND_THE_LAST = (
    "the loads that may be pending are of tiles after the last one: they go to stages of LDS that "
    "nobody reads any more, and a wave ends only after its loads"
)
_HAS_KEYS = (
    "what it would wait for has arrived: every wave has waited for it before except those without "
    "keys, and these have ended"
)
_BOTH_LENGTHS = (
    "what it would wait for has arrived: where there are lengths of the sequences of k there are "
    "lengths of those of q, which were waited for before"
)

_LAST_COLUMNS = (
    "the disabled lanes have no column of dV in this step, and so none in later ones; these stores"
    " are of the wave's last keys, and the wave ends after them"
)
_OF_NO_TILE = (
    "what is read is the tile before the first one, which is zero; 16 bytes further on it is zero "
    "as well"
)

_WAITED_AGAIN = "the read that may still be pending is waited for once more, before its consumer"

_ANOTHERS_ROW = (
    "the additional lanes, fewer than a row has, come after the last whole row: their rows are the"
    " first lanes' next ones and the first of the next workgroup, as far as they exist. They read "
    "what no lane of the launch writes, and store the same words to the same addresses"
)

_BY_ROWS = (
    "the 8 bytes that are not set to zero belong to a tile by rows and the next 8 to dS: both are "
    "written before they are read; only the same tile by columns is read in the first step"
)

_OF_KEYS = ("attn_bwd_bf16_d128", "attn_bwd_bf16_d64")
_ROWS, _SUM, _SINKS = "attn_bwd_rows_bf16", "attn_bwd_sum_bf16", "attn_bwd_sinks"
_ROUND = "attn_bwd_round_bf16"

_AROUND = (
    # Which sequence and head a row of keys is of, where they do not begin anew.
    Stated(
        *(_SUM, "EXEC", _DIVIDED),
        """
          v_cmp_le_u32 vcc, s, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_mul_hi_u32 v, v, v
        """,
        sites=3,
    ),
    Stated(
        *(_SUM, "EXEC", _DIVIDED),
        """
          v_cmp_le_u32 s[2], s, v
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          v_mul_hi_u32 v, v, v
        """,
    ),
    # Which rows of a lane are summed.
    Stated(
        *(_SUM, "EXEC", _NOT_THERE),
        """
          v_cmp_gt_u32 vcc, s, v
          s_or_b64 s[2], s[2], exec
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
        """,
    ),
    Stated(
        *(_SUM, "EXEC", _NOTHING_SUMMED),
        """
          s_or_b64 exec, exec, s[2]
          v_cmp_ne_u32 s[2], 0, v
        > s_and_b64 exec, exec, s[2]
          s_cbranch_execz
        """,
    ),
    Stated(
        *(_ROUND, "EXEC", _ANOTHERS_ROW),
        """
          v_cndmask_b32 v, v, v, vcc
          v_cmp_gt_u32 vcc, s, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
        """,
    ),
    Stated(
        *(_SINKS, ("wait deleted", "wait weakened"), _A_BATCH),
        """
          v_add_f32_dpp v, v, v row_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1
        > s_waitcnt lgkmcnt(0)
          v_readlane_b32 s, v, 0
          v_readlane_b32 s, v, 16
        """,
    ),
    Stated(
        *(_SINKS, "s_nop", _A_BATCH),
        """
          s_branch
        > s_nop 0
          v_add_f32_dpp v, v, v quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1
          s_nop 1
        """,
    ),
    Stated(
        *(_SINKS, "EXEC", _SAME_SUM),
        """
          v_cmp_eq_u32 vcc, 0, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_mov_b32 v, s
        """,
    ),
    Stated(
        *(_SINKS, "EXEC", _FIRST_ONLY),
        """
          ds_write_b32 v, v
        > s_or_b64 exec, exec, s[2]
          v_cmp_eq_u32 vcc, 0, v
          s_waitcnt lgkmcnt(0)
        """,
    ),
    Stated(
        *(_SINKS, "EXEC", _SAME_SUM),
        """
          s_barrier
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_mov_b32 v, 0
        """,
    ),
    Stated(
        *(_ROWS, "EXEC", _TILES),
        """
          v_lshl_or_b32 v, s, 5, v
          v_cmp_gt_u32 vcc, s, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
        """,
    ),
    Stated(
        *(_ROWS, "EXEC", _ONE_TILE),
        """
          v_add_u32 v, 16, v
          v_cmp_gt_u32 vcc, s, v
        > s_and_b64 exec, exec, vcc
          s_cbranch_execz
        """,
        archs=("gfx950",),
    ),
    Stated(
        *(_ROWS, "EXEC", _STRICTER),
        """
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_or_b32 v, 0x80, v
          v_cmp_gt_i32 vcc, s, v
          s_and_saveexec_b64 s[2], vcc
        """,
        sites=2,
    ),
    Stated(
        *(_ROWS, "EXEC", _ROW_ENDED),
        """
          global_store_dwordx4 v[2], v[4], off
        > s_or_b64 exec, exec, s[2]
          v_or_b32 v, 64, v
          v_cmp_gt_i32 vcc, s, v
        """,
        sites=2,
    ),
    Stated(
        *(_ROWS, "EXEC", _A_ROW),
        """
          s_xor_b64 s[2], exec, s[2]
          s_cbranch_execnz
        > s_andn2_saveexec_b64 s[2], s[2]
          s_cbranch_execnz
        """,
        sites=2,
    ),
    Stated(
        *(_ROWS, "EXEC", _A_ROW),
        """
          s_andn2_saveexec_b64 s[2], s[2]
          s_cbranch_execnz
        > s_or_b64 exec, exec, s[2]
          s_and_saveexec_b64 s[2], s[2]
        """,
    ),
    Stated(
        *(_ROWS, "EXEC", _A_ROW),
        """
          s_cbranch_execnz
          s_or_b64 exec, exec, s[2]
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
        """,
    ),
    Stated(
        *(_ROWS, "EXEC", _A_ROW),
        """
          s_andn2_saveexec_b64 s[2], s[2]
          s_cbranch_execnz
        > s_or_b64 exec, exec, s[2]
          s_and_b64 exec, exec, s[2]
        """,
    ),
    Stated(
        *(_ROWS, "EXEC", _A_ROW),
        """
          s_cbranch_execnz
          s_or_b64 exec, exec, s[2]
        > s_and_b64 exec, exec, s[2]
          s_cbranch_execz
        """,
    ),
    Stated(
        *(_ROWS, "EXEC", _SAME_SUM),
        """
          v_cmp_eq_u32 s[2], 1, v
        > s_and_saveexec_b64 s[2], s[2]
          v_bfrev_b32 v, 1
          s_mov_b64 s[2], exec
        """,
        sites=2,
    ),
    Stated(
        *(_ROWS, ("wait deleted", "wait weakened"), _COLUMNS_BEHIND),
        """
          s_or_b64 exec, exec, s[2]
          v_mov_b32 v, 0x7fc00000
        > s_waitcnt vmcnt(0)
          v_cmp_o_f32 vcc, v, v
        """,
    ),
    Stated(
        *(_ROWS, ("wait deleted", "wait weakened"), _COLUMNS_BEHIND),
        """
          s_nop 0
          v_mov_b32 v, 0x7fc00000
        > s_waitcnt vmcnt(0)
          v_cmp_o_f32 vcc, v, v
        """,
    ),
    Stated(
        *(_ROWS, "EXEC", _LAST_TWO),
        """
          v_cndmask_b32 v, -v, v, vcc
          v_add_u32 v, s, v
        > s_or_b64 exec, exec, s[2]
          s_and_b64 s[2], s[2], exec
        """,
        sites=2,
        which=(1,),
    ),
)


def _of_keys(kernel: str) -> tuple[Stated, ...]:
    """Of a kernel of blocks of keys."""
    return (
        Stated(
            *(kernel, "EXEC", _SAME_WORK),
            """
              v_cmp_eq_u32 vcc, 0, v
            > s_and_saveexec_b64 s[2], vcc
              s_cbranch_execz
              s_waitcnt lgkmcnt(0)
              v_mov_b32 v, s
            """,
        ),
        Stated(
            *(kernel, "EXEC", _ALL_SET),
            """
            > s_and_saveexec_b64 s[2], vcc
              s_cbranch_execz
              v_add_u32 v, s, v
              v_add_u32 v, #, v
            """,
        ),
        # Behind the loop.
        Stated(
            *(kernel, "wait deleted, vmcnt", _BEHIND_THE_LAST),
            """
            > s_waitcnt vmcnt(0) lgkmcnt(0)
              s_nop 9
              s_nop 9
              v_mul_f32 v, v, v
            """,
            archs=("gfx950",),
        ),
        Stated(
            *(kernel, ("wait deleted", "wait weakened"), _HAS_KEYS),
            """
              s_lshl_b32 s, s, #
              v_bfrev_b32 v, 1
            > s_waitcnt lgkmcnt(0)
              v_cmp_gt_i32 vcc, s, v
            """,
            sites=2,
            archs=("gfx950",),
        ),
        Stated(
            *(kernel, ("wait deleted", "wait weakened"), _BOTH_LENGTHS),
            """
              s_mov_b32 s, 0
              s_cbranch_scc1
            > s_waitcnt lgkmcnt(0)
              s_ashr_i32 s, s, 31
            """,
        ),
    )


_OF_128 = (
    Stated(
        *("attn_bwd_bf16_d128", "wait weakened", _WAITED_AGAIN),
        """
          v_mov_b32 v, 0x13820
          ds_read_b128 v[4], v
        > s_waitcnt lgkmcnt(0)
          v_mov_b32 v, 0x1381c
        """,
        archs=("gfx950",),
    ),
)
_OF_64 = (
    # Float32 results.
    Stated(
        *("attn_bwd_bf16_d64", "EXEC", _LAST_COLUMNS),
        """
          s_or_b64 exec, exec, s[2]
          buffer_store_dwordx4 v[4], v, s[4], 0 offen
          v_bfrev_b32 v, 1
          v_mul_lo_u32 v, v, s
          v_mov_b32 v, v
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          s_and_saveexec_b64 s[2], vcc
          v_add_lshl_u32 v, v, v, 2
        > s_or_b64 exec, exec, s[2]
          buffer_store_dwordx4 v[4], v, s[4], 0 offen
          s_nop 1
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          s_and_saveexec_b64 s[2], s[2]
          v_add_lshl_u32 v, v, v, 2
          s_or_b64 exec, exec, s[2]
          v_bfrev_b32 v, 1
          v_mov_b32 v, v
        """,
        archs=("gfx950",),
    ),
    Stated(
        *("attn_bwd_bf16_d64", "EXEC", _LAST_COLUMNS),
        """
          s_nop 1
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          s_and_saveexec_b64 s[2], s[2]
          v_add_lshl_u32 v, v, v, 2
        > s_or_b64 exec, exec, s[2]
          buffer_store_dwordx4 v[4], v, s[4], 0 offen
          s_nop 1
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
          v_accvgpr_read_b32 v, a
        """,
        archs=("gfx950",),
    ),
    Stated(
        *("attn_bwd_bf16_d64", "EXEC", _LAST_COLUMNS),
        """
          s_and_saveexec_b64 s[2], s[2]
          v_add_lshl_u32 v, v, v, 2
        > s_or_b64 exec, exec, s[2]
          s_mov_b64 s[2], 0
        """,
        archs=("gfx950",),
    ),
    Stated(
        *("attn_bwd_bf16_d64", ("wait deleted", "wait weakened"), _HAS_KEYS),
        """
          s_add_i32 s, s, s
          s_lshl_b32 s, s, 2
        > s_waitcnt lgkmcnt(0)
          s_add_u32 s, s, s
        """,
        archs=("gfx942",),
    ),
    # Before the loop.
    Stated(
        *("attn_bwd_bf16_d64", "LDS offset", _OF_NO_TILE),
        """
          ds_read_b128 v[4], v offset:1024
          ds_read_b128 v[4], v offset:2048
        > ds_read_b128 v[4], v offset:2560
          s_waitcnt vmcnt(0) lgkmcnt(0)
        """,
        archs=("gfx942",),
    ),
    Stated(
        *("attn_bwd_bf16_d64", "LDS offset", _BY_ROWS),
        """
          v_mov_b32 v, v
          s_movk_i32 s, 0x17ff
        > ds_write_b64 v, v[2]
          v_add_u32 v, 0x800, v
        """,
        archs=("gfx942",),
    ),
)

ARGUMENTS = (
    *_AROUND,
    *_OF_128,
    *_OF_64,
    *(stated for kernel in _OF_KEYS for stated in _of_keys(kernel)),
)
