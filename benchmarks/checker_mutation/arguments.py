"""Mutants that nothing can show, where that takes an argument that no analysis here finds.

Keyed by the digest of the kernel's instructions, so that no argument outlives the code it is about.
"""

from __future__ import annotations

_SHORT_DIVISION = (
    "the lanes that are let in as well divide as 64-bit numbers, which gives the quotient and the "
    "remainder of 32-bit numbers too; their short path is then entered by no lane"
)
_OWN_BYTES = (
    "a wave reads before it and writes after it, of the bytes that both do, only those whose "
    "address has its own number in bit 6"
)
_CONST_BEFORE = (
    "before it the kernel only loads const operands, and it uses no LDS: there is nothing to order"
)
_NO_MASK = (
    "the kernel masks no lane: every offset lies inside its allocation, far before either range"
)
_ONE_BY_ONE = (
    "the lanes that are let in as well, whose neighbour adds to the other half of the same dword, "
    "add one by one with compare-and-swap, which is right for any address; their path with one "
    "packed addition is then entered by no lane"
)
_OTHER_LANES = (
    "the next instruction goes on with the lanes of s[2:3] that are not in EXEC: all of s[2:3], as "
    "no lane of the loop before is among them, whether EXEC holds those or none"
)
_FIRST_COLUMNS = (
    "no wave comes here: in every row that there is one lane has the first columns, so that the "
    "branch before it is always taken"
)
_ONE_GROUP = "no wave comes here: all columns of O that the kernel takes are in one group"
_LATER_FRAGMENTS = (
    "the lanes that stay away have no result in this fragment, and so they have none in the later "
    "ones, which only these stores follow"
)
_LATER_COLUMNS = (
    "the lanes that stay away have no result in this column, and so they have none in the later "
    "ones of the row, which only these stores follow"
)
_ALL_STORED = "all results have been stored, and nothing else follows for any lane"
_SAME_WORDS = (
    "the lanes that are let in as well store the same words to the same address, which "
    "nobody else uses in the rest of the launch"
)
_ONE_STORE = (
    "the lanes that are let in as well are of the same wave, and store the same word to the same "
    "address by the same instruction"
)
_ONLY_AFTER_AN_ABORT = (
    "all parts of the tile have arrived, so that its counter and sums are next looked at by the "
    "next launch, which starts when every wave of this one has taken its sums: the order of the "
    "two matters only if the launch is aborted between them"
)

_FIRST_FRAGMENT_FIRST = (
    "a wave that comes here has results in the fragment before, too, for which it waited until all "
    "that it had read from LDS was there; it has read nothing since"
)
_SAME_ROW = (
    "the lanes that are let in as well hold the same row, of which they have the same sum and "
    "greatest value: they store the same word to the same address"
)
_LAST_CHUNK = (
    "the lanes that are let in as well hold the last chunk of the row too, from the same addresses "
    "and with the same sum: they store its last columns once more, the same words"
)
_ROW_ENDED = (
    "for the lanes that stay away the row ends in this step, and so they have no columns in the "
    "later one, which only these stores follow; a wave without lanes then leads to the end, too"
)
_ENDS = (
    "all results have been stored: a wave with lanes ends by the next branch, and one without by "
    "those behind it, which test masks of EXEC"
)
_NOT_FROM_THERE = (
    "the loads that it would wait for are of the code for a residual, which waves leave for the "
    "end: with lanes by a branch on EXEC, without by branches on masks of EXEC, which are 0. "
    "Waves that come here have two loads under way, which it allows"
)
_YOUNGEST_LOAD = (
    "the one load that may be pending behind it is the last of the loop, whose registers nothing "
    "touches any more: waves that come without the loop take all eight steps, which wait for all"
)
_TWO_BUFFERS = (
    "what is read before it and what is written behind it are two buffers, of which the other "
    "barrier of the loop keeps apart who reads and who writes"
)

# Of attention over a cache.
_LENGTHS_ARE_THERE = (
    "no load is under way: waves that have loaded a length branch around the one of all sequences"
)
_NEVER_ALONE = (
    "no wave comes here: the code of a single sequence, in a loop over more than 64 of them"
)
_COLUMNS_OF_O = (
    "the lanes that are let in as well load columns of V behind the head's, of the rows that there "
    "are: they come to columns of O that are not stored"
)
_NESTED_COLUMNS = (
    "the lanes that stay away have no column in this step of the row, and so they have none in the "
    "later ones, which only these loads and stores follow; then the mask of the rows is restored"
)
_WAITED_BEFORE = (
    "what it would wait for has arrived: in the first turn the wait in front of it covers one load "
    "more for each of Q, which is younger; in a later one the turn between has waited for all"
)
_Q_IS_YOUNGER = (
    "with one load more under way, what it waits for has arrived as well: in the first turn at "
    "least one load of Q is younger; before a later one the turn between has waited for all"
)
_ONLY_THE_WRITE_BACK = (
    "the one operation that may be pending is the write-back itself: parts are written through, "
    "and what it would take along no other workgroup reads"
)

# attn_fwd_bf16_d64_narrow_rtne
_NARROW = "068bffe4eaaafce7"
# gemm_nt_bf16_m32n32k2
_GEMM = "59f034cf8f15ff0d"
_AFTER_COLUMNS_OF_GEMM = (0x482C, 0x4848, 0x4864, 0x4900, 0x491C, 0x4938)
# gemm_nt_bf16_m16n16k1 and merge_state_bf16_b8 of gfx950
_SMALL_GEMM, _MERGE_STATE = "8d4a52c4612006c7", "d5d1887cc722e64e"
_AFTER_COLUMNS_OF_SMALL_GEMM = (0x3574, 0x3590, 0x35AC, 0x362C, 0x3648, 0x3664)
# rms_norm_bf16_c4096_l256 of gfx950
_NORM = "db1490bc9d532834"
# Of as many states, where the lse is stored: before and behind it.
_LSE = {
    0x2018: 0x2070,
    0x2524: 0x257C,
    0x29B4: 0x2A0C,
    0x2DC4: 0x2E1C,
    0x315C: 0x31B4,
    0x346C: 0x34C4,
    0x36FC: 0x3754,
    0x390C: 0x3964,
}

# attn_decode_bf16_d128_q16 of gfx942 and of gfx950.
_DECODE = {
    "8e2f4edef7715a1a": {
        "columns of V": (0x2CDC, 0x2D04, 0x2D38, 0x2D64),
        "columns": (
            *(0x56C0, 0x5C58, 0x61F8, 0x6794, 0x7334, 0x78C8, 0x7E64, 0x8400),
            *(0x9A54, 0x9FEC, 0xA58C, 0xAB28, 0xB6F0, 0xBC84, 0xC220, 0xC7B8),
        ),
        "row": (0xD7DC, 0xD9EC, 0xE3A4),
        "K": (0x56D0, 0x5C68, 0x6208, 0x7344, 0x78D8, 0x7E74),
        "K and V": (
            *(0x5148, 0x56D0, 0x5C68, 0x6208, 0x6834, 0x6934, 0x6A34, 0x6B34),
            *(0x6DC0, 0x7344, 0x78D8, 0x7E74, 0x84A4, 0x85A4, 0x86A4, 0x87A4),
        ),
        "parts": (0xDC74,),
    },
    "63ae753118d97ac5": {
        "columns of V": (0x2CD4, 0x2CFC, 0x2D30, 0x2D5C),
        "columns": (
            *(0x56C4, 0x5C64, 0x6204, 0x67A4, 0x7350, 0x78F0, 0x7E90, 0x8430),
            *(0x9A90, 0xA030, 0xA5D0, 0xAB70, 0xB744, 0xBCE4, 0xC284, 0xC820),
        ),
        "row": (0xD844, 0xDA54, 0xE404),
        "K": (0x56D4, 0x5C74, 0x6214, 0x7360, 0x7900, 0x7EA0),
        "K and V": (
            *(0x5144, 0x56D4, 0x5C74, 0x6214, 0x6844, 0x6944, 0x6A44, 0x6B44),
            *(0x6DD0, 0x7360, 0x7900, 0x7EA0, 0x84D4, 0x85D4, 0x86D4, 0x87D4),
        ),
        "parts": (0xDCD8,),
    },
}
_WAITS = ("wait deleted", "wait weakened")


def _of_decode() -> dict[tuple[str, str, int], str]:
    """Alike on both architectures, up to addresses."""
    found: dict[tuple[str, str, int], str] = {}
    for digest, at in _DECODE.items():
        for kind in _WAITS:
            found[digest, f"{kind}, vmcnt", 0x178C] = _LENGTHS_ARE_THERE
            found |= {(digest, kind, pc): _NEVER_ALONE for pc in (0x1D00, 0x1D1C, 0x1D38)}
        found |= {(digest, "EXEC", pc): _COLUMNS_OF_O for pc in at["columns of V"]}
        found |= {(digest, "EXEC", pc): _NESTED_COLUMNS for pc in at["columns"]}
        found |= {(digest, "EXEC", pc): _SAME_ROW for pc in at["row"]}
        found |= {(digest, "wait deleted, vmcnt", pc): _WAITED_BEFORE for pc in at["K"]}
        found |= {(digest, "wait weakened, vmcnt", pc): _Q_IS_YOUNGER for pc in at["K and V"]}
        found |= {(digest, "wait weakened, vmcnt", pc): _ONLY_THE_WRITE_BACK for pc in at["parts"]}
    return found


# (digest of the kernel's instructions, class, address) -> why nothing can be seen. A class of waits
# may name the counter: "wait deleted, vmcnt".
ARGUMENTS: dict[tuple[str, str, int], str] = {
    **_of_decode(),
    # Kernels of tests/support/peers as Triton 3.9 compiles them: divide_integers, order,
    # scatter_add, transpose.
    ("ea0de2a762b9a4be", "EXEC", 0x18C4): _SHORT_DIVISION,
    ("ea0de2a762b9a4be", "EXEC", 0x1C84): _SHORT_DIVISION,
    ("cbe7b1a304445e0e", "barrier", 0x1CA8): _OWN_BYTES,
    ("9fe8cea69a84f2e5", "barrier", 0x187C): _CONST_BEFORE,
    ("b7bab907b6f8a32e", "barrier", 0x18A4): _CONST_BEFORE,
    ("b7bab907b6f8a32e", "EXEC", 0x194C): _ONE_BY_ONE,
    ("b7bab907b6f8a32e", "EXEC", 0x1A5C): _OTHER_LANES,
    ("2ab93e9720df1242", "num_records", 0x1744): _NO_MASK,
    **{(_NARROW, "EXEC", pc): _FIRST_COLUMNS for pc in (0x2E24, 0x2E2C, 0x4324, 0x432C)},
    **{(_NARROW, "s_nop", pc): _ONE_GROUP for pc in (0x45AC, 0x45BC, 0x67E0, 0x67F0)},
    (_GEMM, "wait deleted", 0x2908): _FIRST_FRAGMENT_FIRST,
    (_GEMM, "wait weakened", 0x2908): _FIRST_FRAGMENT_FIRST,
    (_GEMM, "barrier", 0x2ED8): _ONLY_AFTER_AN_ABORT,
    (_GEMM, "EXEC", 0x28F0): _LATER_FRAGMENTS,
    **{(_GEMM, "EXEC", pc): _LATER_COLUMNS for pc in _AFTER_COLUMNS_OF_GEMM},
    **{(_GEMM, "EXEC", pc): _ALL_STORED for pc in (0x4880, 0x48B0, 0x4954)},
    **{(_GEMM, "EXEC", pc): _SAME_WORDS for pc in (0x2EDC, 0x3034)},
    (_GEMM, "EXEC", 0x2B44): _ONE_STORE,
    (_SMALL_GEMM, "wait weakened", 0x2304): _YOUNGEST_LOAD,
    **{(_SMALL_GEMM, "EXEC", pc): _ONE_STORE for pc in (0x24C4, 0x2660, 0x2764)},
    **{(_SMALL_GEMM, "EXEC", pc): _LATER_COLUMNS for pc in _AFTER_COLUMNS_OF_SMALL_GEMM},
    **{(_SMALL_GEMM, "EXEC", pc): _ALL_STORED for pc in (0x35C8, 0x35F0, 0x3680)},
    **{(_MERGE_STATE, "EXEC", pc): _SAME_ROW for pc in (*_LSE, 0x4350)},
    **{(_MERGE_STATE, "EXEC", pc): _ALL_STORED for pc in _LSE.values()},
    **{(_NORM, kind, 0x2FE0): _NOT_FROM_THERE for kind in ("wait deleted", "wait weakened")},
    **{(_NORM, "EXEC", pc): _LAST_CHUNK for pc in (0x2C50, 0x2EB0, 0x341C, 0x3618)},
    **{(_NORM, "EXEC", pc): _ROW_ENDED for pc in (0x2D08, 0x2D40, 0x3484, 0x34A8)},
    **{(_NORM, "EXEC", pc): _ENDS for pc in (0x2F68, 0x2F98, 0x3680)},
    # Triton's products of bfloat16 and fp8 for gfx950.
    ("9f92254c6c247c38", "barrier", 0x208C): _TWO_BUFFERS,
    ("e02e749580bf907c", "barrier", 0x2324): _TWO_BUFFERS,
}
