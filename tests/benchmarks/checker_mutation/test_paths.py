"""Ways of waves that constant masks decide, and who tells other workgroups of what was stored."""

from __future__ import annotations

import pytest

from benchmarks.checker_mutation.arrivals import of_each_wave
from benchmarks.checker_mutation.equivalence import WaitsOnPaths
from benchmarks.checker_mutation.kernel import KernelCode
from benchmarks.checker_mutation.paths import Paths
from benchmarks.checker_mutation.waits import WaitAnalysis
from tests.support.isa.assembler import assemble
from tests.support.vdev_library import DEFAULT_CPU


def code(*texts: str) -> KernelCode:
    """Bare instructions; branches give their distance in dwords."""
    return KernelCode(b"".join(assemble([*texts, "s_endpgm"], DEFAULT_CPU)), "", DEFAULT_CPU)


@pytest.mark.parametrize(
    ("mask", "on_it", "branch", "comes"),
    [
        ("s_mov_b64 s[4:5], -1", "s_andn2_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 1", False),
        ("s_mov_b64 s[4:5], -1", "s_andn2_b64 vcc, exec, s[4:5]", "s_cbranch_vccnz 1", True),
        ("s_mov_b64 s[4:5], 0", "s_andn2_b64 vcc, exec, s[4:5]", "s_cbranch_vccnz 1", False),
        ("s_mov_b64 s[4:5], 0", "s_and_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 1", False),
        ("s_mov_b64 s[4:5], -1", "s_and_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 1", True),
        ("s_mov_b64 s[4:5], s[6:7]", "s_and_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 1", True),
        ("s_mov_b64 s[6:7], 0", "s_and_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 1", True),
        # Of some lanes.
        ("s_mov_b64 s[4:5], 0", "s_and_b64 vcc, s[8:9], s[4:5]", "s_cbranch_vccz 1", True),
    ],
)
def test_a_constant_mask_decides(mask: str, on_it: str, branch: str, comes: bool) -> None:
    """Behind another maker, whose waves may go either way: an LDS store, and a barrier."""
    kernel = code(
        *("s_cbranch_scc0 3", "ds_write_b32 v0, v1", mask, on_it, branch),
        *("s_barrier", "s_nop 0"),
    )
    store, barrier = kernel.instructions[1], kernel.instructions[5]
    assert (store.mnemonic, barrier.mnemonic) == ("ds_write_b32", "s_barrier")
    assert Paths(kernel).lead(store.pc, barrier.pc) == comes
    assert Paths(kernel).lead(kernel.entry, barrier.pc)
    assert len(WaitAnalysis(kernel).too_early()) == 1
    waits = WaitsOnPaths(kernel)
    assert bool(waits.too_early()) == comes
    nop = kernel.instructions[6]
    assert bool(waits.after(nop.pc, nop.encoding)) == comes


@pytest.mark.parametrize(
    ("between", "comes"),
    [
        ("s_or_b64 s[4:5], s[6:7], s[4:5]", False),
        ("s_or_b64 s[4:5], s[6:7], s[8:9]", True),
        ("s_and_b64 s[4:5], s[6:7], s[4:5]", True),
        ("s_mov_b32 s5, s6", True),
        ("s_mov_b64 s[6:7], 0", False),
    ],
)
def test_what_is_made_of_a_constant_mask(between: str, comes: bool) -> None:
    """All lanes and others are all lanes; what is written anew is not known."""
    kernel = code(
        *("ds_write_b32 v0, v1", "s_mov_b64 s[4:5], -1", between),
        *("s_andn2_b64 vcc, exec, s[4:5]", "s_cbranch_vccz 1", "s_barrier"),
    )
    barrier = kernel.instructions[5]
    assert barrier.mnemonic == "s_barrier"
    assert Paths(kernel).lead(kernel.entry, barrier.pc) == comes


LANE = ("v_and_b32_e32 v6, 63, v0", "v_cmp_eq_u32_e64 s[4:5], 0, v6")
GUARD = ("s_and_saveexec_b64 s[2:3], s[4:5]", "s_cbranch_execz 3")
ADD = "global_atomic_add_x2 v[2:3], v8, v[4:5], s[6:7] sc0"


@pytest.mark.parametrize(
    ("lines", "each"),
    [
        ((*LANE, *GUARD, "s_nop 0", ADD), True),
        (("v_and_b32_e32 v6, 0xff, v0", LANE[1], *GUARD, ADD), False),
        (("v_cmp_eq_u32_e64 s[4:5], 0, v0", *GUARD, ADD), False),
        ((LANE[0], "v_cmp_eq_u32_e64 s[4:5], 1, v6", *GUARD, ADD), False),
        ((LANE[0], "v_cmp_gt_u32_e64 s[4:5], 0, v6", *GUARD, ADD), False),
        ((*LANE, ADD), False),
        ((*LANE, *GUARD, "s_or_b64 exec, exec, s[2:3]", ADD), False),
        # Two ways lead to it.
        (("s_cbranch_scc0 5", *LANE, *GUARD, ADD), False),
    ],
)
def test_the_first_lane_of_every_wave(lines: tuple[str, ...], each: bool) -> None:
    kernel = code(*lines)
    (add,) = (i for i in kernel.instructions if i.mnemonic == "global_atomic_add_x2")
    assert of_each_wave(kernel, add) == each


def test_who_tells_decides_who_has_to_wait() -> None:
    """One wave tells of what all have stored before a barrier, each wave of what it has itself."""
    store = "global_store_dwordx4 v[10:11], v[12:15], off sc1"
    wait = "s_waitcnt vmcnt(0)"
    guards = {"each": LANE, "one": ("s_nop 0", "v_cmp_eq_u32_e64 s[4:5], 0, v0")}

    def early(who: str, *between: str) -> set[str]:
        found = WaitAnalysis(code(store, *between, *guards[who], *GUARD, ADD)).too_early()
        return {pair.why.partition(" ")[0] for pair in found}

    assert early("one", wait, "s_barrier") == early("each", "s_barrier", wait) == set()
    assert early("one", "s_barrier", wait) == {"barrier"}
    assert early("each", "s_barrier") == early("each") == {"arrival"}
