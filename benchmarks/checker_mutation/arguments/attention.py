"""Of attention forward; what holds of every kernel of it is in `idioms`."""

from __future__ import annotations

from benchmarks.checker_mutation.decode_idioms import COLUMNS_OF_O
from benchmarks.checker_mutation.stated import Stated

_FIRST_COLUMNS = (
    "no wave reaches this: in every row that exists one lane has the first columns, so the branch "
    "before it is always taken"
)
_NO_COLUMNS = (
    "the disabled lanes have no column of O in this step, the first, and so none at all: they have"
    " nothing to store later"
)
_ROWS_WITH_WEIGHT = (
    "the disabled lanes have a sum of 0, which no repeated row has: a row is repeated only where "
    "its logarithm is not a number, and that of a row without any weight is -infinity"
)
_OF_NO_KEYS = (
    "the additional lanes have a sum of 0, which only rows without keys have, and their reference "
    "is -infinity: the logarithm of both is -infinity, which these lanes hold without it"
)
_ROWS_OF_A_PART = (
    "the additional lanes have rows after the last one: the partial result of a tile has a row for"
    " each of the tile's, and those that do not exist are never read"
)
_ONE_GROUP = "no wave reaches this: all columns of O that the kernel accepts are in one group"

_NARROW = "attn_fwd_bf16_d64_narrow_rtne"
_GFX942 = ("gfx942",)
_FORWARD, _GFX950 = "attn_fwd_bf16_d128_rtne", ("gfx950",)

ARGUMENTS = (
    # Offsets of every fourth row of V, from the third on.
    Stated(
        *(_NARROW, "EXEC", COLUMNS_OF_O),
        """
          v_bfrev_b32 v, 6
          v_mov_b32 v, v
        > s_and_saveexec_b64 s[2], vcc
          v_or_b32 v, 2, v
        """,
    ),
    # The first 16 columns of rows whose results are not rounded by two instructions.
    Stated(
        *(_FORWARD, "EXEC", _NO_COLUMNS),
        """
          s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          global_store_dwordx4 v[2], v[4], off offset:#
        > s_or_b64 exec, exec, s[2]
        """,
        archs=_GFX950,
    ),
    # Partial results behind the second attempt.
    Stated(
        *(_FORWARD, "EXEC", _ROWS_OF_A_PART),
        """
          v_cmp_gt_i32 s[2], s, v
          v_pk_fma_f32 v[2], v[2], v[2], v[2]
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
          global_load_dwordx4 v[4], v[2], off
        """,
        archs=_GFX950,
    ),
    # The logarithm of each row's sum behind the second attempt; the others are of the first one.
    *(
        Stated(
            *(_FORWARD, "EXEC", _ROWS_WITH_WEIGHT),
            """
              v_mul_f32 v, 0x3f317218, v
              s_or_b64 exec, exec, s[2]
            > s_or_b64 exec, exec, s[2]
              s_andn2_saveexec_b64 s[2], s[2]
              v_log_f32 v, v
            """,
            sites=2 * rows,
            which=tuple(range(rows)),
            archs=archs,
        )
        for rows, archs in ((6, _GFX942), (3, _GFX950))
    ),
    Stated(
        *(_NARROW, "EXEC", _FIRST_COLUMNS),
        """
          s_cbranch_execnz
        > s_or_b64 exec, exec, s[2]
          v_cmp_lt_i32 vcc, 8, v
          s_and_saveexec_b64 s[2], vcc
        """,
        sites=2,
        archs=_GFX942,
    ),
    Stated(
        *(_NARROW, "EXEC", _FIRST_COLUMNS),
        """
          v_cmp_lt_i32 vcc, 8, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execnz
          s_or_b64 exec, exec, s[2]
        """,
        sites=2,
        archs=_GFX942,
    ),
    # The logarithm of a row's sum: of both loops over heads, and of heads with care.
    Stated(
        *(_NARROW, "EXEC", _OF_NO_KEYS),
        """
          v_cmp_neq_f32 vcc, 0, v
          v_mov_b32 v, 0xff800000
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_log_f32 v, v
          v_mul_f32 v, 0x3f317218, v
          v_cmp_ngt_f32 s[2], |v|, s
        """,
        sites=3,
        archs=_GFX942,
    ),
    # The division by the number of columns' groups, of each of the loop's two copies.
    Stated(
        *(_NARROW, "s_nop", _ONE_GROUP),
        """
          s_endpgm
          v_cvt_f32_u32 v, s
          s_sub_i32 s, 0, s
          v_rcp_iflag_f32 v, v
        > s_nop 0
          v_mul_f32 v, 0x4f7ffffe, v
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_NARROW, "s_nop", _ONE_GROUP),
        """
          s_endpgm
          v_cvt_f32_u32 v, s
          s_sub_i32 s, 0, s
          v_rcp_iflag_f32 v, v
          s_nop 0
          v_mul_f32 v, 0x4f7ffffe, v
          v_cvt_u32_f32 v, v
        > s_nop 0
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_NARROW, "s_nop", _ONE_GROUP),
        """
          s_branch
          v_cvt_f32_u32 v, s
          s_sub_i32 s, 0, s
          v_rcp_iflag_f32 v, v
        > s_nop 0
          v_mul_f32 v, 0x4f7ffffe, v
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_NARROW, "s_nop", _ONE_GROUP),
        """
          s_branch
          v_cvt_f32_u32 v, s
          s_sub_i32 s, 0, s
          v_rcp_iflag_f32 v, v
          s_nop 0
          v_mul_f32 v, 0x4f7ffffe, v
          v_cvt_u32_f32 v, v
        > s_nop 0
        """,
        archs=_GFX942,
    ),
)
