"""Small assembled kernels under the performance model: what one instruction costs there.

No cost depends on what memory holds.
"""

from __future__ import annotations

import functools
import importlib.metadata
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amdattn import virtual
from amdattn.bench.kernels import Functions, Launch
from amdattn.device import runtime
from amdattn.device.profiling import LaunchProfile

LANES = 64
STORE_CLK = 213  # of the last stores to the L2 and back, which a wave waits for when it ends
# The body finds, in each wave: s2 = its workgroup; v0 = lane in the workgroup; v2, v5, v3 = lane
# times 4, 8, 16; v4 = a dword of the table by lane; v[8:15] random; s[20:21] the mask that was
# asked for; EXEC full; LDS of 64 KiB.
_SOURCE = """
.amdgcn_target "amdgcn-amd-amdhsa--{arch}"
.text
.globl micro
.p2align 8
.type micro,@function
micro:
  s_load_dwordx4 s[20:23], s[0:1], 0x0
  v_and_b32 v0, 0x3ff, v0
  v_and_b32 v1, 63, v0
  v_lshlrev_b32 v2, 2, v1
  v_lshlrev_b32 v3, 4, v1
  v_lshlrev_b32 v5, 3, v1
  s_waitcnt lgkmcnt(0)
  global_load_dword v4, v2, s[22:23]
  global_load_dwordx4 v[8:11], v3, s[22:23] offset:256
  global_load_dwordx4 v[12:15], v3, s[22:23] offset:512
  s_waitcnt vmcnt(0)
  s_barrier
{body}
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel micro
  .amdhsa_group_segment_fixed_size 65536
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 256
  .amdhsa_accum_offset 128
  .amdhsa_next_free_sgpr 32
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: micro
    .symbol: micro.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 65536
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 32
    .vgpr_count: 256
    .max_flat_workgroup_size: 512
    .args:
      - {{.size: 8, .offset: 0, .value_kind: by_value}}
      - {{.size: 8, .offset: 8, .value_kind: global_buffer, .address_space: global}}
...
.end_amdgpu_metadata
"""

_functions = Functions()


@functools.cache
def assemble(body: str, arch: str) -> bytes:
    """Code object of the kernel `micro` with these instructions."""
    # Itself: `python -m ziglang` takes longer to start it than it takes.
    zig = str(importlib.metadata.distribution("ziglang").locate_file("ziglang/zig"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "k.s").write_text(_SOURCE.format(body=body, arch=arch))
        target = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}"]
        clang = [zig, "clang", *target, "-x", "assembler", "-c", "k.s", "-o", "k.o"]
        subprocess.run(clang, cwd=folder, check=True)
        link = [zig, "ld.lld", "-shared", "k.o", "-o", "k.hsaco"]
        subprocess.run(link, cwd=folder, check=True)
        return (folder / "k.hsaco").read_bytes()


def profiles(
    body: str,
    *,
    launches: int,
    waves: int = 1,
    workgroups: int = 1,
    table: Sequence[int] = (0,) * LANES,
    mask: int = 2**LANES - 1,
    memory: int = 8192,
    untouched: int = 0,
    clock_mhz: int = 0,
    trace_events: int = 0,
    warm_code: bool = True,
    reading: str | None = None,
    simulated_xcd: int = 0,
) -> list[LaunchProfile]:
    """Launches one after the other, of workgroups of `waves`.

    Parameters
    ----------
    table : 64 int
        What v4 holds, by lane.
    mask : int
        What s[20:21] holds.
    memory : int
        Bytes at s[22:23], a multiple of 4.
    untouched : int
        Further bytes behind them, that nothing has written.
    """
    rng = np.random.default_rng(0)
    data = rng.standard_normal(memory // 4, np.float32)
    data[:LANES] = np.array(table, np.uint32).view(np.float32)
    device = runtime.get()
    address = device.malloc(data.nbytes + untouched)
    try:
        device.upload(address, data.ctypes.data, data.nbytes)
        runtime.synchronize()
        kernarg = mask.to_bytes(8, "little") + address.to_bytes(8, "little")
        grid, workgroup = (workgroups, 1, 1), (LANES * waves, 1, 1)
        launch = Launch(assemble(body, device.props.arch), "micro", grid, workgroup, kernarg)
        with virtual.profile(
            clock_mhz=clock_mhz,
            trace_events=trace_events,
            warm_code=warm_code,
            reading=reading,
            simulated_xcd=simulated_xcd,
        ) as profile:
            for _ in range(launches):
                launch.enqueue(_functions)
            runtime.synchronize()
    finally:
        device.free(address)
    return profile.launches


def profile(body: str, **options: Any) -> LaunchProfile:
    """One launch; options as `profiles` has them."""
    return profiles(body, launches=1, **options)[0]


def duration(body: str, *, waves: int = 1, **options: Any) -> int:
    """Clk from the workgroup's start to its end."""
    (time,) = profile(body, waves=waves, **options).times
    return time.end - time.start


def pass_clk(
    text: str,
    *,
    waves: int = 1,
    reading: str | None = None,
    before: str = "",
) -> float:
    """Clk of one pass of a loop around the text, in steady state: the code is in the cache."""
    body = f"""{before}
  s_mov_b32 s4, s20
loop:
{text}
  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 loop"""
    longer, shorter = (
        duration(body, waves=waves, mask=passes, reading=reading) for passes in (24, 8)
    )
    return (longer - shorter) / 16


def clk_per(
    instruction: str,
    copies: int = 32,
    *,
    waves: int = 1,
    reading: str | None = None,
    before: str = "",
) -> float:
    """Clk by which a further copy of the text lengthens a loop; {i} in it counts.

    Parameters
    ----------
    before : str
        What runs once, before the loop.
    """

    def text(count: int) -> str:
        return "\n".join(instruction.format(i=i) for i in range(count))

    more, fewer = (
        pass_clk(text(n), waves=waves, reading=reading, before=before) for n in (2 * copies, copies)
    )
    return (more - fewer) / copies
