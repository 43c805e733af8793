"""Micro kernels whose figures on an MI300X are public: bandwidths, latencies, chains, rates."""

from __future__ import annotations

from dataclasses import dataclass

from amdattn.arch.readings import DEFAULT
from amdattn.bench.clocks import clocks
from amdattn.device.profiling import LaunchProfile
from benchmarks.performance_model.micro_kernel import LANES, clk_per, profile, profiles

WAVES = 8  # of a workgroup, which fills its CU here
MEASURED_MHZ = 2092  # the clock of the published latencies
_LOAD = 16 * LANES * WAVES  # bytes of one load of every lane of a workgroup
_UNROLLED = 8
_ARCH = clocks("gfx942")

# Every lane's own 16 bytes of each pass, at v6 from s[24:25] on; s[26:27] is where it writes.
_START = """
  s_mul_i32 s3, s2, {load}
  v_lshlrev_b32 v6, 4, v0
  v_add_u32 v6, s3, v6
  s_mov_b64 s[24:25], s[22:23]
  s_add_u32 s26, s22, {written}
  s_addc_u32 s27, s23, 0
  s_mov_b32 s4, {passes}
loop:
"""
_END = """
  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 loop
  s_waitcnt vmcnt(0)
"""


def _advance(low: int, step: int) -> str:
    """Of the address in s[low:low+1]."""
    text = f"  s_add_u32 s{low}, s{low}, {step % 2**32}\n"
    return text + f"  s_addc_u32 s{low + 1}, s{low + 1}, {-1 if step < 0 else 0}\n"


def _load(i: int) -> str:
    return f"  global_load_dwordx4 v[{20 + 4 * i}:{23 + 4 * i}], v6, s[24:25]\n"


def _stream(reads: int, writes: bool, nbytes: int, workgroups: int) -> str:
    """Go once over so many arrays of `nbytes`, and write as many bytes or none."""
    stride = _LOAD * workgroups
    passes, rest = divmod(nbytes, stride * _UNROLLED)
    if rest or passes < 1:
        raise ValueError(f"nbytes={nbytes} must be a multiple of {stride * _UNROLLED}")
    text = _START.format(load=_LOAD, written=reads * nbytes, passes=passes)
    for i in range(_UNROLLED):
        text += "".join(
            _load(i % _UNROLLED) + _advance(24, step)
            # From array to array, and back to the first one's next bytes.
            for step in [nbytes] * (reads - 1) + [stride - (reads - 1) * nbytes] * (reads > 0)
        )
    if reads and writes:
        text += "  s_waitcnt vmcnt(0)\n"
    for i in range(_UNROLLED if writes else 0):
        first = 20 + 4 * i if reads else 8
        text += f"  global_store_dwordx4 v6, v[{first}:{first + 3}], s[26:27]\n"
        text += _advance(26, stride)
    return text + _END


def hbm_rate(reads: int, writes: bool, *, mhz: int = 2100) -> float:
    """TB/s of all bytes that move, of 304 CUs and arrays of 319 MB, caches empty."""
    nbytes = _LOAD * _ARCH.num_cus * _UNROLLED * 16
    found = profile(
        _stream(reads, writes, nbytes, _ARCH.num_cus),
        waves=WAVES,
        workgroups=_ARCH.num_cus,
        untouched=(reads + writes) * nbytes,
        clock_mhz=mhz,
    )
    return nbytes * (reads + writes) / found.microseconds() / 1e6


def mall_rate(*, mhz: int = 2100) -> float:
    """TB/s of 304 CUs that read 80 MB which a launch before has read."""
    nbytes = _LOAD * _ARCH.num_cus * _UNROLLED * 4
    body = _stream(1, False, nbytes, _ARCH.num_cus)
    _, found = profiles(
        body,
        launches=2,
        waves=WAVES,
        workgroups=_ARCH.num_cus,
        untouched=nbytes,
        clock_mhz=mhz,
    )
    return nbytes / found.microseconds() / 1e6


def region_rate(nbytes: int, *, apart: int) -> float:
    """Bytes per clk of the device when all workgroups read one region again and again.

    Parameters
    ----------
    nbytes : int
        Of the region, a power of two.
    apart : int
        Bytes between the places where neighbours on an XCD begin.
    """
    body = f"""
  s_lshr_b32 s3, s2, 3
  s_mul_i32 s3, s3, {apart}
  v_lshlrev_b32 v6, 4, v0
  v_add_u32 v6, s3, v6
  v_and_b32 v6, {nbytes - 1}, v6
  s_mov_b64 s[24:25], s[22:23]
  s_mov_b32 s4, s20
loop:
""" + "".join(
        _load(i) + f"  v_add_u32 v6, {_LOAD}, v6\n  v_and_b32 v6, {nbytes - 1}, v6\n"
        for i in range(_UNROLLED)
    )
    few = max(8, 2 * nbytes // (_LOAD * _UNROLLED))
    cycles = [
        profile(
            body + _END,
            waves=WAVES,
            workgroups=_ARCH.num_cus,
            untouched=nbytes,
            mask=passes,
            clock_mhz=2100,
        ).cycles
        for passes in (few, 2 * few)
    ]
    return few * _UNROLLED * _LOAD * _ARCH.num_cus / (cycles[1] - cycles[0])


def latencies() -> dict[str, int]:
    """Clk of a load by the level that has its line, at the clock of the published ones."""
    found = {}
    for name, evicted in (("L1", 0), ("L2", 64 << 10), ("MALL", 8 << 20)):
        # 512 bytes a lane: 32 KiB for four lines of each.
        evict = f"s_mov_b64 s[24:25], s[22:23]\ns_mov_b32 s4, {evicted >> 15}\n"
        evict += "v_lshlrev_b32 v6, 9, v1\nloop:\n"
        evict += "".join(
            f"global_load_dword v20, v6, s[24:25] offset:{128 * i}\n" for i in range(4)
        )
        evict += _advance(24, 32768) + "s_waitcnt vmcnt(0)\n" + _END
        load = "global_load_dword v20, v2, s[22:23]\ns_waitcnt vmcnt(0)\n"
        events = profile(
            (evict if evicted else "") + load,
            memory=16 << 20,
            clock_mhz=MEASURED_MHZ,
            trace_events=100_000,
        ).events
        loads = [event for event in events if event.track == "memory"]
        found[name] = loads[-1].end - loads[-1].start
        found["HBM"] = loads[0].end - loads[0].start
    return found


def lds_chase(name: str = "ds_read_b32 v4, v4") -> float:
    """Clk of a step of a chain of LDS reads."""
    return clk_per(
        f"{name}\ns_waitcnt lgkmcnt(0)",
        before="v_mov_b32 v4, 0\nds_write_b32 v4, v4\ns_waitcnt lgkmcnt(0)",
    )


def reread(nbytes: int, *, chunk: int, every: int) -> LaunchProfile:
    """What one workgroup costs that reads `nbytes` a second time.

    They lie in chunks of `chunk` bytes, of which the first of each `every` is read.
    """
    pieces, loads = nbytes // chunk, chunk // _LOAD
    last = chunk * every - (loads - 1) * _LOAD
    body = f"""
  v_lshlrev_b32 v6, 4, v0
  s_mov_b64 s[24:25], s[22:23]
  s_mov_b32 s4, {pieces}
loop:
""" + "".join(_load(0) + _advance(24, step) for step in [_LOAD] * (loads - 1) + [last])
    _, second = profiles(
        body + _END, launches=2, waves=WAVES, untouched=(pieces + 1) * chunk * every
    )
    return second


MFMA = "v_mfma_f32_32x32x8_bf16 a[0:15], v[8:9], v[10:11], a[0:15]"


@dataclass(frozen=True)
class Hidden:
    """How many of an instruction an MFMA of 32 clk hides, and what the next one costs."""

    count: int
    more: float


def hidden(text: str, reading: str = DEFAULT) -> Hidden:
    """Beside a v_mfma_f32_32x32x8_bf16 of the same wave, in steady state."""

    def clk(count: int) -> float:
        return clk_per(MFMA + f"\n{text}" * count, copies=8, reading=reading)

    alone, count = clk(0), 0
    while (longer := clk(count + 1)) <= alone:
        count += 1
    return Hidden(count, longer - alone)
