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
_SAME_TWICE = (
    "the lanes that are let in as well store the same number at the same address: a row's four "
    "lanes have all got its sum"
)
_ENDS = "on the path that is taken from here the kernel ends"

# attn_fwd_bf16_d128_rtne: the stores of a part, each for the rows that there are; of its lse.
_FORWARD = "b35920c53c54dafc"
_AFTER_STORES = (
    0x12BAC,
    0x12C04,
    0x12C5C,
    0x12CB4,
    0x12D0C,
    0x12D64,
    0x12DBC,
    0x12E20,
    0x12F10,
    0x12F68,
    0x12FC0,
    0x13018,
    0x13070,
    0x130C8,
    0x13120,
    0x13264,
    0x132BC,
    0x13314,
    0x1336C,
    0x133C4,
    0x1341C,
    0x13474,
    0x135B8,
    0x13610,
    0x13668,
    0x136C0,
    0x13718,
    0x13770,
    0x137C8,
    0x1390C,
    0x13964,
    0x139BC,
    0x13A14,
    0x13A6C,
    0x13AC4,
    0x13B1C,
    0x13C60,
    0x13CB8,
    0x13D10,
    0x13D68,
    0x13DC0,
    0x13E18,
    0x13E70,
)
_BEFORE_LSE = (0x13178, 0x134CC, 0x13820, 0x13B74, 0x13EC8)

# (digest of the kernel's instructions, class, address) -> why nothing can be seen
ARGUMENTS: dict[tuple[str, str, int], str] = {
    # attn_merge_bf16_d128_rtne
    ("f71f98f987f87f34", "EXEC", 0x1C7C): _NAN_ANYWAY,
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
    (_FORWARD, "EXEC", 0x12AF4): _ENDS,
    **{(_FORWARD, "EXEC", pc): _ROWS_BEHIND for pc in _AFTER_STORES},
    **{(_FORWARD, "EXEC", pc): _SAME_TWICE for pc in _BEFORE_LSE},
}
