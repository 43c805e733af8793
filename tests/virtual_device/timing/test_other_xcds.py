"""Workgroups of XCDs that are not simulated: who is last or waited for, what they leave."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn import virtual
from amdattn.device.profiling import LaunchProfile
from benchmarks.performance_model.micro_kernel import profile

XCDS = 8
# Adds 1 to the counter of item s4; s5 is what it was before.
ARRIVE = """
  s_lshl_b32 s6, s4, 2
  v_mov_b32 v6, s6
  v_mov_b32 v7, 1
  s_mov_b64 exec, 1
  global_atomic_add v16, v6, v7, s[22:23] sc0
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s5, v16
  s_mov_b64 exec, -1
"""
LAST = "s_cmp_lg_u32 s5, {}\ns_cbranch_scc1 end\nv_sin_f32 v20, v8\n{}end:\n"
ITEMS = {
    "neighbours": ("s_lshr_b32 s4, s2, 3\n", 8),
    "pairs": ("s_lshr_b32 s4, s2, 1\n", 2),
    "a round apart": ("s_and_b32 s4, s2, 15\n", 4),
    "one for all": ("s_mov_b32 s4, 0\n", 64),
    "turned by round": ("s_lshr_b32 s4, s2, 3\ns_add_u32 s4, s4, s2\ns_and_b32 s4, s4, 7\n", 8),
}


def merges(found: LaunchProfile) -> int:
    return sum(site.issued for site in found.sites if site.text.startswith("v_sin_f32"))


@pytest.mark.parametrize("kind", ITEMS)
def test_every_xcd_does_its_share_of_what_the_last_ones_do(kind: str) -> None:
    """Whichever is simulated; and the last of all is of the one that is."""
    item, parts = ITEMS[kind]
    body = item + ARRIVE + LAST.format(parts - 1, "")
    done = [merges(profile(body, workgroups=64, simulated_xcd=xcd)) for xcd in range(XCDS)]
    share = 64 // parts // XCDS
    assert all(max(share, 1) <= found <= share + 1 for found in done), done


def test_counters_are_waited_for_across_xcds() -> None:
    """The first workgroup spins until all have arrived, those of the other XCDs included."""
    spin = """
  s_mov_b32 s4, 0
  s_cmp_lg_u32 s2, 0
  s_cbranch_scc1 end
again:
  s_sleep 1
  v_mov_b32 v6, 0
  global_load_dword v16, v6, s[22:23] sc1
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s5, v16
  s_cmp_lg_u32 s5, 32
  s_cbranch_scc1 again
  v_sin_f32 v20, v8
end:
"""
    found = profile("s_mov_b32 s4, 0\n" + ARRIVE + spin, workgroups=32)
    assert merges(found) == 1


def test_what_others_write_at_device_scope_is_in_the_last_level_cache() -> None:
    """Reading it takes nothing from HBM, as for all that the simulated XCD has written itself."""
    own = "s_mov_b32 s4, 0\ns_lshl_b32 s7, s2, 8\nv_add_u32 v17, s7, v2\n"
    store = "global_store_dword v17, v8, s[22:23] offset:2048 {}\ns_waitcnt vmcnt(0)\n"
    read = "".join(
        f"global_load_dword v21, v2, s[22:23] offset:{2048 + 256 * nth} sc1\n" for nth in range(7)
    )
    bytes_of = {}
    for scope in ("sc1", ""):
        body = own + store.format(scope) + ARRIVE
        for text in ("", read):
            found = profile(
                body + LAST.format(XCDS - 1, text + "s_waitcnt vmcnt(0)\n"),
                workgroups=XCDS,
                simulated_xcd=XCDS - 1,  # the last one of the first round
            )
            assert merges(found) == 1
            bytes_of[scope, text] = found.bytes["hbm"]
    assert bytes_of["sc1", read] == bytes_of["sc1", ""]
    assert bytes_of["", read] == bytes_of["", ""] + 7 * 256


@pytest.mark.parametrize("simulated", [0, 1])
def test_complete_results(simulated: int) -> None:
    """With `complete` whatever is not simulated is executed, and the profile is the same."""
    rows = np.random.default_rng(3).standard_normal((300, 256), np.float32)
    x = rows.astype(ml_dtypes.bfloat16)
    weight = np.ones(256, ml_dtypes.bfloat16)
    expected = amdattn.rms_norm(x, weight)
    cycles = []
    for complete in (0, 1):
        virtual.set_option("complete", complete)
        try:
            with virtual.profile(simulated_workgroups=simulated) as profile:
                found = amdattn.rms_norm(x, weight)
        finally:
            virtual.set_option("complete", 0)
        assert (found.tobytes() == expected.tobytes()) == bool(complete)
        cycles.append([launch.cycles for launch in profile.launches])
    assert cycles[0] == cycles[1]
