"""Mutants that nothing can show, where that takes an argument that no analysis here finds.

Keyed by the digest of the kernel's instructions, so that no argument outlives the code it is about.
"""

from __future__ import annotations

_NEXT_TILE = (
    "loads of a next tile are issued exactly when the loop goes round again (more than 64 keys are "
    "left), so none is pending behind the loop"
)
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
_NAN_ANYWAY = (
    "the lanes that are let in as well have a NaN for a sum, and so for its reciprocal; of a NaN "
    "the kernel stores one bit pattern only"
)
_ROWS_BEHIND = (
    "the lanes that stay away have rows behind the sequence's end, and so do those rows in the "
    "later tiles: nothing more is stored for them"
)
_COLUMNS_BEHIND = (
    "the lanes that stay away have columns behind the last one, and so have they in the later "
    "stores of the row; behind those the mask of the rows is restored"
)
_ONLY_LSE = (
    "only the log-sum-exp of later tiles is stored from here on, by the lanes that stay, as far as "
    "their rows are the sequence's"
)
_FIRST_COLUMNS = (
    "no wave comes here: in every row that there is one lane has the first columns, so that the "
    "branch before it is always taken"
)

# attn_fwd_bf16_d128_rtne
_FORWARD = "b0a9e53cfc540a2d"
_AFTER_ROWS = (0xC2FC, 0xEB38, 0xFD18)
_AFTER_COLUMNS = (0xDE24, 0xDE30, 0xE050, 0xE26C, 0xE488)
_AFTER_LSE = (
    *(0xE76C, 0xE7BC, 0xE80C, 0xE85C, 0xE8AC, 0xE900),
    *(0xF500, 0xF530, 0xF56C, 0xF5A8, 0xF5E4),
)

# (digest of the kernel's instructions, class, address) -> why nothing can be seen
ARGUMENTS: dict[tuple[str, str, int], str] = {
    # attn_merge_bf16_d128_rtne
    ("cde14a7d933f75f3", "EXEC", 0x1BAC): _NAN_ANYWAY,
    # attn_fwd_bf16_d128
    ("7a9dd3b96c53c6c9", "wait deleted", 0x36C0): _NEXT_TILE,
    ("7a9dd3b96c53c6c9", "wait deleted", 0x3824): _NEXT_TILE,
    ("7a9dd3b96c53c6c9", "wait weakened", 0x36C0): _NEXT_TILE,
    ("7a9dd3b96c53c6c9", "wait weakened", 0x3824): _NEXT_TILE,
    # Kernels of tests/peers as Triton 3.9 compiles them: divide_integers, order, scatter_add,
    # transpose.
    ("ea0de2a762b9a4be", "EXEC", 0x18C4): _SHORT_DIVISION,
    ("ea0de2a762b9a4be", "EXEC", 0x1C84): _SHORT_DIVISION,
    ("cbe7b1a304445e0e", "barrier", 0x1CA8): _OWN_BYTES,
    ("9fe8cea69a84f2e5", "barrier", 0x187C): _CONST_BEFORE,
    ("b7bab907b6f8a32e", "barrier", 0x18A4): _CONST_BEFORE,
    ("b7bab907b6f8a32e", "EXEC", 0x194C): _ONE_BY_ONE,
    ("b7bab907b6f8a32e", "EXEC", 0x1A5C): _OTHER_LANES,
    ("2ab93e9720df1242", "num_records", 0x1744): _NO_MASK,
    **{(_FORWARD, "EXEC", pc): _ROWS_BEHIND for pc in _AFTER_ROWS},
    **{(_FORWARD, "EXEC", pc): _COLUMNS_BEHIND for pc in _AFTER_COLUMNS},
    **{(_FORWARD, "EXEC", pc): _FIRST_COLUMNS for pc in (0xDE18, 0xDE1C)},
    **{(_FORWARD, "EXEC", pc): _ONLY_LSE for pc in _AFTER_LSE},
}
