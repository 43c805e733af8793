"""SOP1, SOP2, SOPC, SOPK: what every instruction computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.isa.int_oracle import clamp_s, signed

M32, M64 = 0xFFFFFFFF, (1 << 64) - 1
# SCC rules: "keep" leaves it, "nonzero" tests the result, else the function returns (result, scc).
KEEP, NONZERO, OWN = "keep", "nonzero", "own"


@dataclass(frozen=True)
class Scalar:
    """dst and source widths in bits (dst 0: SCC only), the function, what happens to SCC."""

    dst: int
    srcs: tuple[int, ...]
    fn: Callable[..., object]
    scc: str = KEEP
    takes_scc: bool = False


def s32(x: int) -> int:
    return signed(x, 32)


def logic(name: str, fn: Callable[..., int], arity: int = 2) -> dict[str, Scalar]:
    return {f"{name}_b{n}": Scalar(n, (n,) * arity, fn, NONZERO) for n in (32, 64)}


def first(x: int, wanted: str, width: int, *, from_top: bool = False) -> int:
    """Position of the first bit that is `wanted`, -1 if there is none."""
    digits = f"{x:0{width}b}"
    return (digits if from_top else digits[::-1]).find(wanted)


def sign_run(x: int, width: int) -> int:
    digits = f"{x:0{width}b}"
    return digits.find("1" if digits[0] == "0" else "0")


def quads(x: int, width: int) -> list[bool]:
    return [bool(x >> i & 15) for i in range(0, width, 4)]


def wqm(x: int, width: int) -> int:
    return sum(15 << 4 * i for i, q in enumerate(quads(x, width)) if q)


def quadmask(x: int, width: int) -> int:
    return sum(1 << i for i, q in enumerate(quads(x, width)) if q)


def replicate(x: int) -> int:
    return int("".join(2 * b for b in f"{x:032b}"), 2)


def by_width(
    name: str, fn: Callable[[int, int], int], dst: int = 0, scc: str = KEEP, suffix: str = "b"
) -> dict[str, Scalar]:
    """_b32 and _b64 forms of fn(x, width); dst 0: as wide as the source."""
    return {
        f"{name}_{suffix}{n}": Scalar(dst or n, (n,), lambda x, n=n: fn(x, n), scc)
        for n in (32, 64)
    }  # fmt: skip


SOP1_OPS: dict[str, Scalar] = {
    "s_mov_b32": Scalar(32, (32,), lambda x: x),
    "s_mov_b64": Scalar(64, (64,), lambda x: x),
    **logic("s_not", lambda x: ~x, 1),
    **by_width("s_wqm", wqm, scc=NONZERO),
    **by_width("s_brev", lambda x, n: int(f"{x:0{n}b}"[::-1], 2)),
    **by_width("s_bcnt0_i32", lambda x, n: f"{x:0{n}b}".count("0"), 32, NONZERO),
    **by_width("s_bcnt1_i32", lambda x, n: x.bit_count(), 32, NONZERO),
    **by_width("s_ff0_i32", lambda x, n: first(x, "0", n), 32),
    **by_width("s_ff1_i32", lambda x, n: first(x, "1", n), 32),
    **by_width("s_flbit_i32", lambda x, n: first(x, "1", n, from_top=True), 32),
    "s_flbit_i32": Scalar(32, (32,), lambda x: sign_run(x, 32)),
    "s_flbit_i32_i64": Scalar(32, (64,), lambda x: sign_run(x, 64)),
    "s_sext_i32_i8": Scalar(32, (32,), lambda x: signed(x, 8)),
    "s_sext_i32_i16": Scalar(32, (32,), lambda x: signed(x, 16)),
    **by_width("s_quadmask", quadmask, scc=NONZERO),
    "s_abs_i32": Scalar(32, (32,), lambda x: abs(s32(x)), NONZERO),
    "s_bitreplicate_b64_b32": Scalar(64, (32,), replicate),
}
BITSET_OPS: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "s_bitset0_b32": (32, lambda d, x: d & ~(1 << (x & 31))),
    "s_bitset0_b64": (64, lambda d, x: d & ~(1 << (x & 63))),
    "s_bitset1_b32": (32, lambda d, x: d | 1 << (x & 31)),
    "s_bitset1_b64": (64, lambda d, x: d | 1 << (x & 63)),
}
SAVEEXEC_OPS: dict[str, Callable[[int, int], int]] = {
    "s_and_saveexec_b64": lambda s, e: s & e,
    "s_or_saveexec_b64": lambda s, e: s | e,
    "s_xor_saveexec_b64": lambda s, e: s ^ e,
    "s_andn2_saveexec_b64": lambda s, e: s & ~e,
    "s_orn2_saveexec_b64": lambda s, e: s | ~e,
    "s_nand_saveexec_b64": lambda s, e: ~(s & e),
    "s_nor_saveexec_b64": lambda s, e: ~(s | e),
    "s_xnor_saveexec_b64": lambda s, e: ~(s ^ e),
    "s_andn1_saveexec_b64": lambda s, e: ~s & e,
    "s_orn1_saveexec_b64": lambda s, e: ~s | e,
}
WREXEC_OPS: dict[str, Callable[[int, int], int]] = {
    "s_andn1_wrexec_b64": lambda s, e: ~s & e,
    "s_andn2_wrexec_b64": lambda s, e: s & ~e,
}
CMOV_OPS = {"s_cmov_b32": 32, "s_cmov_b64": 64}
MOVREL_OPS = {"s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64"}
REFUSED_OPS = {"s_rfe_b64", "s_cbranch_join"}
# In test_control.py.
CONTROL_SOP1 = {"s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_set_gpr_idx_idx"}


def add_s(a: int, b: int) -> tuple[int, bool]:
    return a + b, clamp_s(a + b, 32) != a + b


def bfe(width: int, *, is_signed: bool) -> Callable[[int, int], int]:
    def run(x: int, control: int) -> int:
        offset, n = control & (width - 1), control >> 16 & 127
        x = signed(x, width) if is_signed else x
        field = x >> offset & ((1 << min(n, width)) - 1)
        return signed(field, min(n, width)) if is_signed and n else field

    return run


def shift_add(n: int) -> Scalar:
    return Scalar(32, (32, 32), lambda a, b: ((a << n) + b, (a << n) + b > M32), OWN)


SOP2_OPS: dict[str, Scalar] = {
    "s_add_u32": Scalar(32, (32, 32), lambda a, b: (a + b, a + b > M32), OWN),
    "s_sub_u32": Scalar(32, (32, 32), lambda a, b: (a - b, b > a), OWN),
    "s_add_i32": Scalar(32, (32, 32), lambda a, b: add_s(s32(a), s32(b)), OWN),
    "s_sub_i32": Scalar(32, (32, 32), lambda a, b: add_s(s32(a), -s32(b)), OWN),
    "s_addc_u32": Scalar(32, (32, 32), lambda a, b, c: (a + b + c, a + b + c > M32), OWN, True),
    "s_subb_u32": Scalar(32, (32, 32), lambda a, b, c: (a - b - c, b + c > a), OWN, True),
    "s_min_i32": Scalar(32, (32, 32), lambda a, b: (min(s32(a), s32(b)), s32(a) < s32(b)), OWN),
    "s_min_u32": Scalar(32, (32, 32), lambda a, b: (min(a, b), a < b), OWN),
    "s_max_i32": Scalar(32, (32, 32), lambda a, b: (max(s32(a), s32(b)), s32(a) >= s32(b)), OWN),
    "s_max_u32": Scalar(32, (32, 32), lambda a, b: (max(a, b), a >= b), OWN),
    "s_cselect_b32": Scalar(32, (32, 32), lambda a, b, c: a if c else b, KEEP, True),
    "s_cselect_b64": Scalar(64, (64, 64), lambda a, b, c: a if c else b, KEEP, True),
    **logic("s_and", lambda a, b: a & b),
    **logic("s_or", lambda a, b: a | b),
    **logic("s_xor", lambda a, b: a ^ b),
    **logic("s_andn2", lambda a, b: a & ~b),
    **logic("s_orn2", lambda a, b: a | ~b),
    **logic("s_nand", lambda a, b: ~(a & b)),
    **logic("s_nor", lambda a, b: ~(a | b)),
    **logic("s_xnor", lambda a, b: ~(a ^ b)),
    "s_lshl_b32": Scalar(32, (32, 32), lambda a, b: a << (b & 31), NONZERO),
    "s_lshl_b64": Scalar(64, (64, 32), lambda a, b: a << (b & 63), NONZERO),
    "s_lshr_b32": Scalar(32, (32, 32), lambda a, b: a >> (b & 31), NONZERO),
    "s_lshr_b64": Scalar(64, (64, 32), lambda a, b: a >> (b & 63), NONZERO),
    "s_ashr_i32": Scalar(32, (32, 32), lambda a, b: s32(a) >> (b & 31), NONZERO),
    "s_ashr_i64": Scalar(64, (64, 32), lambda a, b: signed(a, 64) >> (b & 63), NONZERO),
    "s_bfm_b32": Scalar(32, (32, 32), lambda a, b: (1 << (a & 31)) - 1 << (b & 31)),
    "s_bfm_b64": Scalar(64, (32, 32), lambda a, b: (1 << (a & 63)) - 1 << (b & 63)),
    "s_mul_i32": Scalar(32, (32, 32), lambda a, b: a * b),
    "s_bfe_u32": Scalar(32, (32, 32), bfe(32, is_signed=False), NONZERO),
    "s_bfe_i32": Scalar(32, (32, 32), bfe(32, is_signed=True), NONZERO),
    "s_bfe_u64": Scalar(64, (64, 32), bfe(64, is_signed=False), NONZERO),
    "s_bfe_i64": Scalar(64, (64, 32), bfe(64, is_signed=True), NONZERO),
    # The difference wraps before its magnitude is taken.
    "s_absdiff_i32": Scalar(32, (32, 32), lambda a, b: abs(s32(a - b)), NONZERO),
    "s_mul_hi_u32": Scalar(32, (32, 32), lambda a, b: a * b >> 32),
    "s_mul_hi_i32": Scalar(32, (32, 32), lambda a, b: s32(a) * s32(b) >> 32),
    **{f"s_lshl{n}_add_u32": shift_add(n) for n in (1, 2, 3, 4)},
    "s_pack_ll_b32_b16": Scalar(32, (32, 32), lambda a, b: a & 0xFFFF | b << 16),
    "s_pack_lh_b32_b16": Scalar(32, (32, 32), lambda a, b: a & 0xFFFF | b >> 16 << 16),
    "s_pack_hh_b32_b16": Scalar(32, (32, 32), lambda a, b: a >> 16 | b >> 16 << 16),
}

RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def compare_op(fn: Callable[[int, int], bool], view: Callable[[int], int], width: int) -> Scalar:
    return Scalar(0, (width, width), lambda a, b: (0, fn(view(a), view(b))), OWN)


def bit_test(width: int, wanted: int) -> Scalar:
    return Scalar(0, (width, 32), lambda a, b: (0, a >> (b & (width - 1)) & 1 == wanted), OWN)


SOPC_OPS: dict[str, Scalar] = {
    **{f"s_cmp_{n}_i32": compare_op(fn, s32, 32) for n, fn in RELATIONS.items()},
    **{f"s_cmp_{n}_u32": compare_op(fn, int, 32) for n, fn in RELATIONS.items()},
    "s_cmp_eq_u64": compare_op(RELATIONS["eq"], int, 64),
    "s_cmp_lg_u64": compare_op(RELATIONS["lg"], int, 64),
    **{f"s_bitcmp{i}_b{n}": bit_test(n, i) for i in (0, 1) for n in (32, 64)},
}
CONTROL_SOPC = {"s_setvskip", "s_set_gpr_idx_on"}

SOPK_COMPARES = {f"s_cmpk_{n}_{t}32": (fn, t) for n, fn in RELATIONS.items() for t in "iu"}
SOPK_OTHER = {"s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_mulk_i32", "s_cbranch_i_fork"}
CONTROL_SOPK = {"s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32", "s_call_b64"}
