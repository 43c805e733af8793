"""Of attention over a cache; `decode_idioms` has what is recognised by what it does."""

from __future__ import annotations

from benchmarks.checker_mutation.stated import Stated

_FIRST_PAGE = (
    "what it would wait for has arrived: the first lane looks up the page of a key before the end,"
    " or the wave would not be here, so the wave has already waited to tell whether there is such "
    "a page"
)
_NO_SEQUENCE = (
    "a wave has all of its lanes here or none, and what follows is a test over all lanes, which is"
    " false where there is no lane or no sequence"
)
_FIRST_COLUMNS = (
    "no wave reaches this: it is the path of waves in which no lane has a column of the first "
    "step, and one lane always has column 0"
)
_KERNEL = "attn_decode_bf16_d128_q16"
_KERNELS = (_KERNEL, "attn_decode_bf16_d128_q64")

ARGUMENTS: tuple[Stated, ...] = (
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
    # Behind the first step over the columns of Q, of each tile of rows.
    Stated(
        *(_KERNELS[1], "EXEC", _FIRST_COLUMNS),
        """
          v_mov_b32 v, s
          s_and_saveexec_b64 s[2], vcc
          s_cbranch_execnz
          s_or_b64 exec, exec, s[2]
          v_cmp_lt_i32 vcc, v, v
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execnz
          s_or_b64 exec, exec, s[2]
          v_cmp_lt_i32 vcc, v, v
          s_and_saveexec_b64 s[2], vcc
        """,
        sites=4,
        archs=("gfx942",),
    ),
    # Whether two sequences are the same.
    *(
        Stated(kernel, "EXEC", _NO_SEQUENCE, site)
        for kernel in _KERNELS
        for site in (
            """
              v_cmp_gt_i32 vcc, s, v
            > s_and_saveexec_b64 s[2], vcc
              s_cbranch_execz
              s_add_i32 s, s, -1
              s_mov_b64 s[2], 0
            """,
            """
              s_or_b64 exec, exec, s[2]
              s_and_b64 s[2], s[2], exec
            > s_or_b64 exec, exec, s[2]
              v_cndmask_b32 v, 0, 1, s[2]
              v_cmp_ne_u32 vcc, 0, v
              s_cbranch_vccz
              s_trap 3
            """,
        )
    ),
)
