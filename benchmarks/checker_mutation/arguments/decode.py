"""Of attention over a cache; `decode_idioms` has what is recognised by what it does."""

from __future__ import annotations

from benchmarks.checker_mutation.stated import Stated

_FIRST_PAGE = (
    "what it would wait for has arrived: the first lane looks up the page of a key that is before "
    "the end, or the wave would not be here, so that the wave has waited to tell whether there is "
    "such a page"
)
_KERNEL = "attn_decode_bf16_d128_q16"

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
)
