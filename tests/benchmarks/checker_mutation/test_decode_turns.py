"""Keys that are hidden in a later turn, held against cases worked out by hand."""

from __future__ import annotations

from benchmarks.checker_mutation import decode_turns
from benchmarks.checker_mutation.equivalence import WaitsOnPaths
from benchmarks.checker_mutation.generate import mutants
from benchmarks.checker_mutation.kernel import KernelCode
from tests.support.isa.assembler import assemble
from tests.support.vdev_library import DEFAULT_CPU

_PRODUCT = ("v_mfma_f32_16x16x16_bf16 v[0:3], v[4:5], v[6:7], v[0:3]",)
_SIZE = 35  # dwords of what hides keys


def _shown(
    *,
    between: tuple[str, ...] = _PRODUCT,
    first: str = "s_cbranch_scc0 0",
    words: int = 16,
) -> list[str]:
    """What is said of the waits where keys of one turn are hidden and, behind that, of another."""
    hidden = tuple(f"v_cndmask_b32_e64 v{n}, v{n}, 0, vcc" for n in range(20, 20 + words))
    block = ("v_cmp_lt_i32 vcc, 0, v8", "s_waitcnt vmcnt(3)", "s_nop 0", *hidden)
    block += ("s_nop 0", "s_nop 0") * (16 - words)
    texts = [
        *(first, "s_cbranch_vccz 4", *between, f"s_cbranch_vccz {_SIZE + 2}", "s_endpgm"),
        *(*block, f"s_branch {-(_SIZE + 5)}", *block, f"s_branch {-(2 * _SIZE + 3)}"),
    ]
    kernel = KernelCode(b"".join(assemble([*texts, "s_endpgm"], DEFAULT_CPU)), "", DEFAULT_CPU)
    waits = [m for m in mutants(kernel, False) if m.kind == "wait deleted"]
    return [decode_turns.argument(kernel, wait) for wait in waits]


def test_a_wave_hides_keys_of_its_first_turn_only() -> None:
    one, other = _shown()
    assert not one and "later turn" in other


def test_a_turn_is_later_behind_products_of_another() -> None:
    assert _shown(between=("s_nop 0", "s_nop 0")) == ["", ""]
    assert _shown(first="s_cbranch_scc0 1") == ["", ""]  # a way around the other one
    assert _shown(words=12) == ["", ""]  # less than a chunk has


def _early(*, compare: str = "s_cmp_ge_i32 s4, s5", step: str = "s_add_i32 s6, s4, s7") -> int:
    """How much is used too early in a loop that loads a key's values and waits where it has one."""
    texts = [
        *("v_add_u32 v1, 1, v0", "global_load_dword v0, v[2:3], off", compare),
        *("s_cbranch_scc1 1", "s_waitcnt vmcnt(0)", step, "s_cmp_lt_i32 s6, s5"),
        *("s_cbranch_scc0 1", "s_branch -10", "s_waitcnt vmcnt(0)"),
    ]
    kernel = KernelCode(b"".join(assemble([*texts, "s_endpgm"], DEFAULT_CPU)), "", DEFAULT_CPU)
    return len(WaitsOnPaths(kernel, past=decode_turns.past_the_end).too_early())


def test_a_turn_without_keys_is_the_last_one() -> None:
    assert _early() == 0
    assert _early(compare="s_cmp_ge_i32 s4, s8") == 1
    assert _early(compare="s_cmp_ge_u32 s4, s5") == 1
    for step in ("s_add_i32 s6, s6, s7", "s_sub_i32 s6, s4, s7", "s_add_i32 s4, s4, s7"):
        assert _early(step=step) == 1
