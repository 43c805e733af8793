"""Micro kernels whose figures on an MI300X are public: bandwidths, latencies, chains."""

from __future__ import annotations

from amdattn.bench.clocks import clocks
from amdattn.profiling import LaunchProfile
from build_scripts.micro_kernel import LANES, clk_per, profile, profiles

WAVES = 8  # of a workgroup, which fills its CU here
_BYTES = 16 * LANES * WAVES  # of one load of every lane of a workgroup
_UNROLLED = 8
_ARCH = clocks("gfx942")

# Every lane's own 16 bytes of each pass, at v6 from s[24:25] (read) and s[26:27] (written).
_START = """
  s_mul_i32 s3, s2, {of_workgroup}
  v_lshlrev_b32 v6, 4, v0
  v_add_u32 v6, s3, v6
  s_mov_b64 s[24:25], s[22:23]
  s_add_u32 s26, s22, {half}
  s_addc_u32 s27, s23, 0
  s_mov_b32 s4, {passes}
loop:
"""
_NEXT = """
  s_add_u32 s{low}, s{low}, {stride}
  s_addc_u32 s{high}, s{high}, 0
"""
_END = """
  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 loop
"""


def _streams(reads: bool, writes: bool, nbytes: int, workgroups: int) -> str:
    """Go over `nbytes` once: read, write, or copy them."""
    stride = _BYTES * workgroups
    passes, rest = divmod(nbytes, stride * _UNROLLED)
    if rest or passes < 1:
        raise ValueError(f"nbytes={nbytes} must be a multiple of {stride * _UNROLLED}")
    text = _START.format(of_workgroup=_BYTES, half=nbytes, passes=passes)
    if reads:
        for i in range(_UNROLLED):
            text += f"  global_load_dwordx4 v[{20 + 4 * i}:{23 + 4 * i}], v6, s[24:25]\n"
            text += _NEXT.format(low=24, high=25, stride=stride)
    if reads and writes:
        text += "  s_waitcnt vmcnt(0)\n"
    if writes:
        for i in range(_UNROLLED):
            first = 20 + 4 * i if reads else 8
            text += f"  global_store_dwordx4 v6, v[{first}:{first + 3}], s[26:27]\n"
            text += _NEXT.format(low=26, high=27, stride=stride)
    return text + _END + "  s_waitcnt vmcnt(0)\n"


def hbm_rate(reads: bool, writes: bool, *, mhz: int = 2100) -> float:
    """TB/s of all bytes that move, of 304 CUs on 304 MiB (copies: twice that), caches empty."""
    workgroups = _ARCH.num_cus
    nbytes = _BYTES * workgroups * _UNROLLED * 16
    body = _streams(reads, writes, nbytes, workgroups)
    found = profile(
        body,
        waves=WAVES,
        workgroups=workgroups,
        untouched=(1 + writes) * nbytes,
        clock_mhz=mhz,
    )
    return nbytes * (reads + writes) / found.microseconds() / 1e6


def lds_chase() -> float:
    """Clk of a step of a chain of ds_read_b32."""
    return clk_per(
        "ds_read_b32 v4, v4\ns_waitcnt lgkmcnt(0)",
        before="v_mov_b32 v4, 0\nds_write_b32 v4, v4\ns_waitcnt lgkmcnt(0)",
    )


def reread(nbytes: int, *, chunk: int, every: int) -> LaunchProfile:
    """What one workgroup costs that reads `nbytes` a second time.

    They lie in chunks of `chunk` bytes, of which the first of each `every` is read.
    """
    pieces = nbytes // chunk
    step = chunk * every
    loads = chunk // _BYTES
    body = f"""
  v_lshlrev_b32 v6, 4, v0
  s_mov_b64 s[24:25], s[22:23]
  s_mov_b32 s4, {pieces}
loop:
""" + "".join(
        f"  global_load_dwordx4 v[20:23], v6, s[24:25]\n  s_add_u32 s24, s24, {step_}\n"
        "  s_addc_u32 s25, s25, 0\n"
        for step_ in [_BYTES] * (loads - 1) + [step - (loads - 1) * _BYTES]
    )
    _, second = profiles(
        body + _END, launches=2, waves=WAVES, untouched=pieces * step + step, clock_mhz=2100
    )
    return second
