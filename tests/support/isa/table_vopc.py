"""VOPC: what every compare computes."""

from __future__ import annotations

from tests.support.isa import float_oracle as fo
from tests.support.isa.builders import plain
from tests.support.isa.float_oracle import Fmt, Mode
from tests.support.isa.vectors import FLOATS, Op

# Relations of two ordered numbers that a compare accepts, and whether it accepts NaN.
FLOAT_COMPARES = {
    "f": ("", False), "lt": ("<", False), "eq": ("=", False), "le": ("<=", False),
    "gt": (">", False), "lg": ("<>", False), "ge": (">=", False), "o": ("<=>", False),
    "u": ("", True), "nge": ("<", True), "nlg": ("=", True), "ngt": ("<=", True),
    "nle": (">", True), "neq": ("<>", True), "nlt": (">=", True), "tru": ("<=>", True),
}  # fmt: skip
INT_COMPARES = {
    "f": "", "lt": "<", "eq": "=", "le": "<=", "gt": ">", "ne": "<>", "ge": ">=", "t": "<=>",
}  # fmt: skip


def relation(a: float, b: float) -> str:
    return "<" if a < b else ">" if a > b else "="


def float_relation(fmt: Fmt, m: Mode, a: int, b: int) -> str:
    """ "<", "=" or ">" of two numbers, "?" with a NaN; denormal operands by MODE."""
    a, b = fo.flush_in(fmt, m, a), fo.flush_in(fmt, m, b)
    if fmt.is_nan(a) or fmt.is_nan(b):
        return "?"
    if fmt.is_zero(a) and fmt.is_zero(b):
        return "="

    def key(x: int) -> int:
        return -(x & (fmt.sign - 1)) if fmt.negative(x) else x

    return relation(key(a), key(b))


def float_compare(kind: str, accepted: str, nan: bool) -> Op:
    def run(m: Mode, a: int, b: int) -> bool:
        found = float_relation(FLOATS[kind], m, a, b)
        return nan if found == "?" else found in accepted

    return Op("mask", (kind, kind), run)


def int_compare(kind: str, accepted: str) -> Op:
    return plain("mask", f"{kind} {kind}", lambda a, b: relation(a, b) in accepted)


def class_compare(kind: str) -> Op:
    fmt = FLOATS[kind]
    return plain("mask", f"{kind} u32", lambda x, mask: mask >> fo.classify(fmt, x) & 1)


def family() -> dict[str, Op]:
    ops: dict[str, Op] = {}
    for prefix in ("v_cmp_", "v_cmpx_"):
        for kind in ("f16", "f32", "f64"):
            ops[f"{prefix}class_{kind}"] = class_compare(kind)
            for name, (accepted, nan) in FLOAT_COMPARES.items():
                ops[f"{prefix}{name}_{kind}"] = float_compare(kind, accepted, nan)
        for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
            for name, accepted in INT_COMPARES.items():
                ops[f"{prefix}{name}_{kind}"] = int_compare(kind, accepted)
    return ops


VOPC_OPS = family()
