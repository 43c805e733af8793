"""The code objects of the micro kernels that `amdattn bench micro` and the report run.

Its kernels are those of amdattn/bench/micro_table.py, and a few that look at the device. They are
assembled, not compiled: what an instruction costs is seen only where nothing else is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.bench import micro_rows as rows, micro_table as table
from build_scripts.manifest import sha256
from build_scripts.toolchain import LLVM22, assemble

FOLDER = "micro"
SCHEMA = 1
VGPRS, ACC_OFFSET, SGPRS, LDS_BYTES, MAX_LANES = 256, 128, 48, 65536, 512

# Name, bytes, and whether it is an address; amdattn/bench/micro.py packs them.
ARGUMENTS = (
    ("passes", 4, False),
    ("waves", 4, False),
    ("memory", 8, True),
    ("results", 8, True),
    ("stride", 4, False),
    ("array", 4, False),
    ("apart", 4, False),
    ("mask", 4, False),
)

# s2 = workgroup; s20 passes, s21 waves, s[22:23] memory, s[28:29] results, s32 stride, s33 array,
# s34 apart, s35 mask; v0 = lane in the workgroup, v1 in the wave, v2, v5, v3 = that times 4, 8, 16.
_PROLOGUE = """  s_load_dwordx4 s[20:23], s[0:1], 0x0
  s_load_dwordx2 s[28:29], s[0:1], 0x10
  s_load_dwordx4 s[32:35], s[0:1], 0x18
  v_and_b32 v0, 0x3ff, v0
  v_and_b32 v1, 63, v0
  v_lshlrev_b32 v2, 2, v1
  v_lshlrev_b32 v3, 4, v1
  v_lshlrev_b32 v5, 3, v1
  s_waitcnt lgkmcnt(0)
"""
# v[8:15] from memory, accumulators 0.
_VALUES = (
    """  global_load_dwordx4 v[8:11], v3, s[22:23] offset:256
  global_load_dwordx4 v[12:15], v3, s[22:23] offset:512
"""
    + "".join(f"  v_accvgpr_write_b32 a{i}, 0\n" for i in range(16))
    + """  s_waitcnt vmcnt(0)
  s_barrier
"""
)
_LOOP_END = """  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 {label}
"""
_WAIT = "  s_waitcnt vmcnt(0) lgkmcnt(0)\n"


def _clocks(low: int) -> str:
    """Engine clock and 100 MHz clock, into four registers."""
    return (
        f"  s_memtime s[{low}:{low + 1}]\n  s_memrealtime s[{low + 2}:{low + 3}]\n"
        "  s_waitcnt lgkmcnt(0)\n"
    )


def _store(first: int, count: int, index: str) -> str:
    """So many SGPRs, a multiple of 4, to the results of index v7, by one lane."""
    text = index + f"  v_lshlrev_b32 v7, {(4 * count).bit_length() - 1}, v7\n"
    text += "".join(f"  v_mov_b32 v{24 + i}, s{first + i}\n" for i in range(count))
    text += "  s_mov_b64 exec, 1\n"
    for i in range(0, count, 4):
        text += f"  global_store_dwordx4 v7, v[{24 + i}:{27 + i}], s[28:29] offset:{4 * i}\n"
    return text


_BY_WAVE = """  s_mul_i32 s5, s2, s21
  v_lshrrev_b32 v7, 6, v0
  v_add_u32 v7, s5, v7
"""
_BY_WORKGROUP = "  v_mov_b32 v7, s2\n"


def _clk(row: rows.Clk, copies: int) -> str:
    text = "\n".join(row.text.replace("@", f"_{row.name}_{copies}_{i}") for i in range(copies))
    label = f"loop_{row.name}_{copies}"
    return (
        f"{_VALUES}{row.before}\n  s_mov_b32 s4, s20\n{_clocks(36)}{label}:\n{text}\n"
        f"{_LOOP_END.format(label=label)}{_WAIT}{_clocks(40)}{_store(36, 8, _BY_WAVE)}"
    )


def _add(low: int, amount: str, carry: str = "0") -> str:
    """To the address in s[low:low+1]."""
    return f"  s_add_u32 s{low}, s{low}, {amount}\n  s_addc_u32 s{low + 1}, s{low + 1}, {carry}\n"


def _load(i: int) -> str:
    return f"  global_load_dwordx4 v[{20 + 4 * i}:{23 + 4 * i}], v6, s[24:25]\n"


def _stream(row: rows.Stream) -> str:
    """Go once over all arrays; s[6:7] leads to the next bytes of the first one."""
    loop = f"loop_{row.symbol}"
    # What is written where nothing is read: not from memory, where others write already.
    values = "".join(f"  v_mov_b32 v{i}, 1.0\n" for i in range(8, 12))
    text = f"""{values}  s_mul_i32 s3, s2, {rows.LOAD_BYTES}
  v_lshlrev_b32 v6, 4, v0
  v_add_u32 v6, s3, v6
  s_mul_i32 s5, s33, {max(row.reads - 1, 0)}
  s_sub_u32 s6, s32, s5
  s_subb_u32 s7, 0, 0
  s_mul_i32 s5, s33, {row.reads}
  s_mov_b64 s[24:25], s[22:23]
  s_add_u32 s26, s22, s5
  s_addc_u32 s27, s23, 0
  s_mov_b32 s4, s20
{loop}:
"""
    for i in range(rows.UNROLLED):
        text += (_load(i) + _add(24, "s33")) * (row.reads - 1)
        text += (_load(i) + _add(24, "s6", "s7")) * (row.reads > 0)
    text += "  s_waitcnt vmcnt(0)\n" * (row.writes and row.reads > 0)
    for i in range(rows.UNROLLED if row.writes else 0):
        first = 20 + 4 * i if row.reads else 8
        text += f"  global_store_dwordx4 v6, v[{first}:{first + 3}], s[26:27]\n" + _add(26, "s32")
    return text + _LOOP_END.format(label=loop) + "  s_waitcnt vmcnt(0)\n"


def _region(row: rows.Region) -> str:
    text = f"""  s_lshr_b32 s3, s2, 3
  s_mul_i32 s3, s3, s34
  v_lshlrev_b32 v6, 4, v0
  v_add_u32 v6, s3, v6
  v_and_b32 v6, s35, v6
  s_mov_b64 s[24:25], s[22:23]
  s_mov_b32 s4, s20
loop_{row.symbol}:
"""
    for i in range(rows.UNROLLED):
        text += f"{_load(i)}  v_add_u32 v6, {rows.LOAD_BYTES}, v6\n  v_and_b32 v6, s35, v6\n"
    return text + _LOOP_END.format(label=f"loop_{row.symbol}") + "  s_waitcnt vmcnt(0)\n"


def _latency() -> str:
    """Clk between two clocks: with the load cold, again, behind other lines, and without it."""

    def timed(into: int, load: bool) -> str:
        text = f"{_WAIT}  s_memtime s[36:37]\n  s_waitcnt lgkmcnt(0)\n"
        if load:
            text += "  global_load_dword v20, v2, s[22:23] offset:2048\n  s_waitcnt vmcnt(0)\n"
        text += "  s_memtime s[38:39]\n  s_waitcnt lgkmcnt(0)\n"
        return text + f"  s_sub_u32 s{into}, s38, s36\n"

    text = _VALUES + timed(40, True) + timed(41, True)
    text += "  s_mov_b64 s[24:25], s[22:23]\n  s_mov_b32 s4, s20\n  v_lshlrev_b32 v6, 9, v1\n"
    text += "loop_latency:\n"
    text += "".join(f"  global_load_dword v20, v6, s[24:25] offset:{128 * i}\n" for i in range(4))
    text += _add(24, "32768") + "  s_waitcnt vmcnt(0)\n" + _LOOP_END.format(label="loop_latency")
    return text + timed(42, True) + timed(43, False) + _store(40, 4, _BY_WORKGROUP)


# Every argument decides what is written: passes ^ stride ^ array ^ apart ^ mask, plus the lane's
# number in the grid; `waves` is of a workgroup.
_FILL = """  s_lshl_b32 s3, s21, 6
  s_mul_i32 s3, s2, s3
  v_add_u32 v6, s3, v0
  s_xor_b32 s4, s20, s32
  s_xor_b32 s4, s4, s33
  s_xor_b32 s4, s4, s34
  s_xor_b32 s4, s4, s35
  v_add_u32 v7, s4, v6
  v_lshlrev_b32 v6, 2, v6
  global_store_dword v6, v7, s[28:29]
"""
_ADD = """  s_lshl_b32 s3, s21, 6
  s_mul_i32 s3, s2, s3
  v_add_u32 v6, s3, v0
  v_lshlrev_b32 v6, 2, v6
  global_load_dword v7, v6, s[28:29]
  s_waitcnt vmcnt(0)
  v_add_u32 v7, s20, v7
  global_store_dword v6, v7, s[28:29]
"""
# HW_ID, XCC_ID and the time of one wave, which sleeps `passes` times in between.
_IDS = f"""  s_getreg_b32 s36, hwreg(4)
  s_getreg_b32 s37, hwreg(20)
  s_memrealtime s[38:39]
  s_waitcnt lgkmcnt(0)
  s_mov_b32 s4, s20
loop_ids:
  s_sleep 8
{_LOOP_END.format(label="loop_ids")}  s_memrealtime s[40:41]
  s_waitcnt lgkmcnt(0)
  s_mov_b64 s[42:43], 0
{_store(36, 8, _BY_WORKGROUP)}"""


def bodies() -> Iterator[tuple[str, str]]:
    """Symbol and instructions of every kernel, without prologue and end."""
    for clk in table.CLK:
        for copies in (clk.copies, 2 * clk.copies):
            yield clk.symbol(copies), _clk(clk, copies)
    yield rows.Latency.symbol, _latency()
    yield rows.Region.symbol, _region(table.REGIONS[0])
    for stream in {row.symbol: row for row in table.STREAMS}.values():
        yield stream.symbol, _stream(stream)
    yield "amdattn_micro_fill", _FILL
    yield "amdattn_micro_add", _ADD
    yield "amdattn_micro_ids", _IDS


def assembly(arch: str) -> str:
    """The whole source for an architecture, for the assembler."""
    kernels = dict(bodies())
    text = f'.amdgcn_target "amdgcn-amd-amdhsa--{arch}"\n.amdhsa_code_object_version 5\n'
    for symbol, body in kernels.items():
        text += f".text\n.globl {symbol}\n.p2align 8\n.type {symbol},@function\n{symbol}:\n"
        text += f"{_PROLOGUE}{body}  s_endpgm\n{_DESCRIPTOR.format(symbol=symbol)}"
    text += ".amdgpu_metadata\n---\namdhsa.version: [1, 2]\n"
    text += f"amdhsa.target: amdgcn-amd-amdhsa--{arch}\namdhsa.kernels:\n"
    text += "".join(_metadata(symbol) for symbol in kernels)
    return text + "...\n.end_amdgpu_metadata\n"


_DESCRIPTOR = f""".rodata
.p2align 6
.amdhsa_kernel {{symbol}}
  .amdhsa_group_segment_fixed_size {LDS_BYTES}
  .amdhsa_kernarg_size {sum(size for _, size, _ in ARGUMENTS)}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr {VGPRS}
  .amdhsa_accum_offset {ACC_OFFSET}
  .amdhsa_next_free_sgpr {SGPRS}
.end_amdhsa_kernel
"""


def _metadata(symbol: str) -> str:
    facts = {
        "name": symbol,
        "symbol": f"{symbol}.kd",
        "kernarg_segment_size": sum(size for _, size, _ in ARGUMENTS),
        "kernarg_segment_align": 8,
        "group_segment_fixed_size": LDS_BYTES,
        "private_segment_fixed_size": 0,
        "wavefront_size": rows.LANES,
        "sgpr_count": SGPRS,
        "sgpr_spill_count": 0,
        "vgpr_count": VGPRS,
        "agpr_count": VGPRS - ACC_OFFSET,
        "vgpr_spill_count": 0,
        "max_flat_workgroup_size": MAX_LANES,
    }
    lines = [f"    .{key}: {value}" for key, value in facts.items()]
    lines[0] = "  - " + lines[0].lstrip()
    lines.append("    .args:")
    offset = 0
    for _, size, is_address in ARGUMENTS:
        kind = "global_buffer, .address_space: global" if is_address else "by_value"
        lines.append(f"      - {{.size: {size}, .offset: {offset}, .value_kind: {kind}}}")
        offset += size
    return "\n".join(lines) + "\n"


def write(target: Path) -> None:
    """Assemble into `target`/micro, each with what it is in JSON."""
    for arch in ARCHITECTURES:
        _write(target / FOLDER, arch)


def _write(folder: Path, arch: str) -> None:
    text = assembly(arch)
    image = assemble(text, LLVM22, arch)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"amdattn_micro_{arch}.hsaco"
    file.write_bytes(image)
    manifest = {
        "schema": SCHEMA,
        "arch": arch,
        "file": file.name,
        "sha256": sha256(image),
        "assembly_sha256": sha256(text.encode()),
        "toolchain": str(LLVM22),
        "code_object_version": 5,
        "arguments": [name for name, _, _ in ARGUMENTS],
        "kernels": [symbol for symbol, _ in bodies()],
    }
    (folder / f"{arch}.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
