"""Of split-K products."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.checker_mutation.stated import EVERY_ARCH, Stated

_LATER_FRAGMENTS = (
    "the disabled lanes have no result in this fragment, and so none in later ones; only the "
    "stores of those follow"
)
_LATER_COLUMNS = (
    "the disabled lanes have no result in this column, and so none in later ones of the row; only "
    "the stores of those follow"
)
_ALL_STORED = "all results have been stored, and nothing else follows for any lane"
_SAME_WORDS = (
    "the additional lanes store the same words to the same address, which nobody else uses in the "
    "rest of the launch"
)
_ONE_STORE = (
    "the additional lanes are of the same wave, and store the same word to the same address by the"
    " same instruction"
)
_ONLY_AFTER_AN_ABORT = (
    "all parts of the tile have arrived, so its counter and sums are next read by the next launch,"
    " which starts when every wave of this one has taken its sums: the order of the two matters "
    "only if the launch is aborted between them"
)
_FIRST_FRAGMENT_FIRST = (
    "a wave that reaches this has results in the fragment before, too, for which it waited until "
    "all its LDS reads had arrived; it has read nothing since"
)
_YOUNGEST_LOAD = (
    "the one load that may be pending after it is the last of the loop, whose registers nothing "
    "touches any more: waves that skip the loop take all eight steps, which wait for every load"
)
_COUNTER_IS_READ = (
    "the counter has already been read into a scalar register, so only loads of what is added to "
    "the product may be pending; nobody writes that in the launch, and the end of the tile waits "
    "for the loads"
)
_WAITS = ("wait deleted", "wait weakened")

_LARGE, _GFX942 = "gemm_nt_bf16_m32n32k2", ("gfx942",)
_SMALL, _GFX950 = "gemm_nt_bf16_m16n16k1", ("gfx950",)
_NORMED, _TILE = "gemm_nt_bf16_rms_m16n16k1", "gemm_nt_bf16_t256x256"

# Stores of a row's columns one by one: the class, the store, and what follows the restored mask.
_NEXT = """
          v_cmp_lt_i32 vcc, #, v
          s_and_b64 s[2], s[2], vcc
"""
_END = """
          s_mov_b64 s[2], 0
          s_branch
"""
_COLUMNS = (
    (_LATER_COLUMNS, "global_store_short v[2], v, off", _NEXT),
    (_LATER_COLUMNS, "global_store_short_d16_hi v[2], v, off offset:2", _NEXT),
    (_LATER_COLUMNS, "global_store_short v[2], v, off offset:4", _NEXT),
    (_ALL_STORED, "global_store_short_d16_hi v[2], v, off offset:6", _END),
    (_LATER_COLUMNS, "global_store_dword v[2], v, off", _NEXT),
    (_LATER_COLUMNS, "global_store_dword v[2], v, off offset:4", _NEXT),
    (_LATER_COLUMNS, "global_store_dword v[2], v, off offset:8", _NEXT),
    (_ALL_STORED, "global_store_dword v[2], v, off offset:12", _END),
)


def _columns(kernel: str, archs: tuple[str, ...], fragments: int) -> Iterator[Stated]:
    """Of the last of so many fragments."""
    for reason, store, after in _COLUMNS:
        site = f"{store}\n> s_or_b64 exec, exec, s[2]{after}"
        yield Stated(
            *(kernel, "EXEC", reason, site, fragments),
            which=(fragments - 1,),
            archs=archs,
        )


ARGUMENTS = (
    *_columns(_LARGE, _GFX942, fragments=2),
    *_columns(_SMALL, _GFX950, fragments=1),
    *_columns(_NORMED, EVERY_ARCH, fragments=1),
    Stated(
        *(_TILE, "EXEC", _SAME_WORDS),
        """
          s_mov_b64 s[2], 0
          s_cbranch_scc1
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
        """,
    ),
    Stated(
        *(_LARGE, _WAITS, _FIRST_FRAGMENT_FIRST),
        """
          s_cbranch_execz
        > s_waitcnt lgkmcnt(0)
          v_pk_add_f32 v[2], v[2], v[2]
          s_movk_i32 s, 0x7fff
        """,
        archs=_GFX942,
    ),
    *(
        Stated(
            *(kernel, _WAITS, _COUNTER_IS_READ),
            """
              s_andn2_b64 vcc, exec, s[2]
              s_cbranch_vccnz
            > s_waitcnt vmcnt(0)
              buffer_inv sc1
            """,
            archs=archs,
        )
        for kernel, archs in ((_LARGE, _GFX942), (_SMALL, _GFX950))
    ),
    Stated(
        *(_LARGE, "barrier", _ONLY_AFTER_AN_ABORT),
        """
          global_atomic_swap v, v, v, s[2] offset:# sc0
          s_waitcnt vmcnt(0)
        > s_barrier
          s_and_saveexec_b64 s[2], s[2]
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_LARGE, "EXEC", _LATER_FRAGMENTS),
        """
          global_store_dwordx2 v[2], v[2], off
        > s_or_b64 exec, exec, s[2]
          v_cmp_lt_i32 s[2], 16, v
          s_and_b64 s[2], s[2], vcc
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_LARGE, "EXEC", _ALL_STORED),
        """
          global_store_dwordx2 v[2], v[2], off
        > s_or_b64 exec, exec, s[2]
          s_branch
          s_lshl_b32 s, s, 2
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_LARGE, "EXEC", _SAME_WORDS),
        """
          global_atomic_swap v, v, v, s[2] offset:# sc0
          s_waitcnt vmcnt(0)
          s_barrier
        > s_and_saveexec_b64 s[2], s[2]
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_LARGE, "EXEC", _SAME_WORDS),
        """
          s_cbranch_scc1
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          s_lshl_b64 s[2], s[2], 3
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_LARGE, "EXEC", _ONE_STORE),
        """
          s_waitcnt vmcnt(0)
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_mov_b32 v, 0
        """,
        archs=_GFX942,
    ),
    Stated(
        *(_SMALL, "wait weakened", _YOUNGEST_LOAD),
        """
          s_nop 7
        > s_waitcnt vmcnt(0)
          s_cmp_lg_u32 s, 0
          v_lshlrev_b32 v, 16, v
        """,
        archs=_GFX950,
    ),
    Stated(
        *(_SMALL, "EXEC", _ONE_STORE),
        """
          s_waitcnt vmcnt(0)
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          v_mov_b64 v[2], s[2]
        """,
        archs=_GFX950,
    ),
    Stated(
        *(_SMALL, "EXEC", _ONE_STORE),
        """
          global_atomic_swap v, v, v, s[2] offset:# sc0
          s_waitcnt vmcnt(0)
        > s_and_saveexec_b64 s[2], s[2]
          s_cbranch_execz
        """,
        archs=_GFX950,
    ),
    Stated(
        *(_SMALL, "EXEC", _ONE_STORE),
        """
          s_cbranch_scc1
        > s_and_saveexec_b64 s[2], vcc
          s_cbranch_execz
          s_lshl_b64 s[2], s[2], 3
        """,
        archs=_GFX950,
    ),
    Stated(
        *(_SMALL, "EXEC", _ALL_STORED),
        """
          global_store_dwordx2 v[2], v[2], off
        > s_or_b64 exec, exec, s[2]
          s_mov_b64 s[2], 0
          s_and_b64 vcc, exec, s[2]
        """,
        archs=_GFX950,
    ),
)
