"""Of kernels of tests/support/peers as Triton 3.9 compiles them."""

from __future__ import annotations

from benchmarks.checker_mutation.stated import Stated

_SHORT_DIVISION = (
    "the additional lanes divide 64-bit numbers, which gives the quotient and the remainder of "
    "32-bit numbers too; no lane then enters their short path"
)
_OWN_BYTES = (
    "of the bytes that are read before it and written after it, a wave touches only those whose "
    "address has the wave's number in bit 6"
)
_CONST_BEFORE = (
    "before it the kernel only loads const operands, and the kernel uses no LDS: there is nothing "
    "to order"
)
_NO_MASK = (
    "the kernel masks no lane: every offset lies inside its allocation, far before the end of "
    "either range"
)
_ONE_BY_ONE = (
    "the additional lanes, whose neighbour adds to the other half of the same dword, add one by "
    "one with compare-and-swap, which is right for any address; no lane then enters their path "
    "with one packed addition"
)
_OTHER_LANES = (
    "the next instruction continues with the lanes of the mask that are not in EXEC: these are the"
    " whole mask, as it has no lane of the loop before, whether EXEC holds those lanes or none"
)
_TWO_BUFFERS = (
    "the reads before it and the writes after it go to two different buffers, and the loop's other"
    " barrier separates the readers and the writers of each"
)

_GFX942, _GFX950 = ("gfx942",), ("gfx950",)

ARGUMENTS = (
    Stated(
        *("triton divide_integers", "EXEC", _SHORT_DIVISION),
        """
          v_cmp_ne_u32 s[2], 0, v
        > s_and_saveexec_b64 s[2], s[2]
          s_xor_b64 s[2], exec, s[2]
          s_cbranch_execz
        """,
    ),
    Stated(
        *("triton divide_integers", "EXEC", _SHORT_DIVISION),
        """
          v_cmp_ne_u32 vcc, 0, v
        > s_and_saveexec_b64 s[2], vcc
          s_xor_b64 s[2], exec, s[2]
          s_cbranch_execz
        """,
    ),
    Stated(
        *("triton order", "barrier", _OWN_BYTES),
        """
          s_waitcnt lgkmcnt(0)
        > s_barrier
          s_bitcmp1_b32 s, 0
          v_xor_b32_dpp v, v, v quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:1
        """,
        archs=_GFX942,
    ),
    Stated(
        *("triton scatter_add f32", "barrier", _CONST_BEFORE),
        """
          s_mov_b32 s, s
        > s_barrier
          buffer_wbl2 sc1
          s_waitcnt vmcnt(0)
        """,
    ),
    Stated(
        *("triton scatter_add f16", "barrier", _CONST_BEFORE),
        """
          v_mov_b32 v, 0
        > s_barrier
          s_waitcnt vmcnt(1)
          v_ashrrev_i32 v, 31, v
        """,
    ),
    Stated(
        *("triton scatter_add f16", "EXEC", _ONE_BY_ONE),
        """
          s_xor_b64 s[2], s[2], -1
        > s_and_saveexec_b64 s[2], s[2]
          s_xor_b64 s[2], exec, s[2]
          s_cbranch_execz
        """,
    ),
    Stated(
        *("triton scatter_add f16", "EXEC", _OTHER_LANES),
        """
          s_cbranch_execnz
        > s_or_b64 exec, exec, s[2]
          s_andn2_saveexec_b64 s[2], s[2]
          s_cbranch_execz
        """,
    ),
    Stated(
        *("triton transpose", "num_records", _NO_MASK),
        """
          s_mov_b32 s, 0x27000
        > s_mov_b32 s, 0x7ffffffe
          v_or_b32 v, 0x1000, v
          buffer_load_dwordx4 v[4], v, s[4], 0 offen
        """,
        archs=_GFX942,
    ),
    Stated(
        *("triton matmul bf16", "barrier", _TWO_BUFFERS),
        """
          v_mfma_f32_32x32x16_bf16 v[16], v[4], v[4], v[16]
        > s_barrier
          v_add_u32 v, s, v
          v_add_u32 v, s, v
        """,
        archs=_GFX950,
    ),
    Stated(
        *("triton matmul fp8", "barrier", _TWO_BUFFERS),
        """
          s_cmp_lt_i32 s, s
        > s_barrier
          v_add_u32 v, s, v
          v_add_u32 v, s, v
        """,
        archs=_GFX950,
    ),
)
