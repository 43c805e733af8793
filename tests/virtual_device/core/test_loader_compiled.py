"""The loader on code objects of LLVM and of AMD, compared with pyelftools, msgpack and LLVM."""

from __future__ import annotations

import io
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.loader_library import Loaded

msgpack = pytest.importorskip("msgpack")
elffile = pytest.importorskip("elftools.elf.elffile")

HIP_SOURCE = r"""
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
extern "C" {
__device__ int table[4] = {11, 22, 33, 44};
__device__ int zeros[5000];
__device__ int* third = &table[2];
__attribute__((constant)) float coefficient[3] = {1.5f, -2.25f, 1e-20f};
__device__ __attribute__((noinline)) int helper(int x) { return table[x & 3] + zeros[x]; }
struct Five { int a[5]; };
__global__ void first(int* out, float scale, char c, Five five) {
  __shared__ int tile[256];
  int i = __builtin_amdgcn_workitem_id_x();
  tile[i] = helper(i) + c + five.a[1];
  __builtin_amdgcn_s_barrier();
  out[i] = tile[255 - i] * scale + *third + coefficient[i & 1] +
           __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workgroup_id_y();
}
__global__ __attribute__((amdgpu_flat_work_group_size(64, 512))) void second(long* out, int n) {
  volatile int local[100];
  for (int i = 0; i < n; ++i) local[i % 100] = i;
  out[__builtin_amdgcn_workitem_id_y()] = local[n % 100] + __builtin_amdgcn_workitem_id_z() +
                                          (long)__builtin_amdgcn_dispatch_ptr();
}
}
"""


def zig(*arguments: str, cwd: Path) -> None:
    pytest.importorskip("ziglang")
    subprocess.run([sys.executable, "-m", "ziglang", *arguments], check=True, cwd=cwd)


def link(assembly: str, arch: str, version: int, directory: Path) -> bytes:
    """Assemble and link one code object."""
    (directory / "k.s").write_text(assembly)
    target = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", f"-mcode-object-version={version}"]
    zig("clang", *target, "-x", "assembler", "-c", "k.s", "-o", "k.o", cwd=directory)
    zig("ld.lld", "-shared", "k.o", "-o", "k.hsaco", cwd=directory)
    return (directory / "k.hsaco").read_bytes()


def compile_hip(arch: str, version: int, directory: Path) -> bytes:
    (directory / "k.hip").write_text(HIP_SOURCE)
    options = [f"--offload-arch={arch}", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-O2"]
    options += ["-fuse-cuid=none", f"-mcode-object-version={version}", "-S", "-o", "k.s"]
    zig("clang", "-x", "hip", *options, "k.hip", cwd=directory)
    return link((directory / "k.s").read_text(), arch, version, directory)


class Reference:
    """What pyelftools and msgpack read from an image."""

    def __init__(self, data: bytes) -> None:
        self.elf = elffile.ELFFile(io.BytesIO(data))
        self.symbols = {s.name: s for s in self.elf.get_section_by_name(".dynsym").iter_symbols()}
        (note,) = (
            n["n_descdata"]
            for segment in self.elf.iter_segments("PT_NOTE")
            for n in segment.iter_notes()
            if n["n_name"] == "AMDGPU" and n["n_type"] in (32, "NT_AMDGPU_METADATA")
        )
        self.metadata = msgpack.unpackb(note)

    def bytes_at(self, address: int, size: int) -> bytes:
        for segment in self.elf.iter_segments("PT_LOAD"):
            offset = address - segment["p_vaddr"]
            if 0 <= offset <= segment["p_filesz"] - size:
                return bytes(segment.data()[offset : offset + size])
        raise AssertionError(f"{address:#x} is in no segment")

    def kernel(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a kernel as the loader reports it, with addresses of the image."""
        at = self.symbols[row[".symbol"]]["st_value"]
        raw = self.bytes_at(at, 64)
        rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIIHH", raw, 44)
        (entry,) = struct.unpack_from("<q", raw, 16)
        total, accum_offset = (rsrc1 % 64 + 1) * 8, (rsrc3 % 64 + 1) * 4
        user = ["private_segment_buffer", "dispatch_ptr", "queue_ptr", "kernarg_ptr"]
        user += ["dispatch_id", "flat_scratch", "private_segment_size"]
        return {f"user_{name}": bool(properties >> i & 1) for i, name in enumerate(user)} | {
            "name": row[".name"],
            "descriptor_address": at,
            "entry_address": at + entry,
            "lds_bytes": row[".group_segment_fixed_size"],
            "scratch_bytes": row[".private_segment_fixed_size"],
            "dynamic_stack": row.get(".uses_dynamic_stack", False) or bool(properties >> 11 & 1),
            "kernarg_bytes": row[".kernarg_segment_size"],
            "kernarg_align": row[".kernarg_segment_align"],
            "max_workgroup_size": row[".max_flat_workgroup_size"],
            "uniform_workgroup_size": row.get(".uniform_work_group_size", 0) == 1,
            "num_vgprs": accum_offset,
            "num_agprs": total - accum_offset,
            "num_sgprs": row[".sgpr_count"],
            "vgpr_spills": row.get(".vgpr_spill_count", 0),
            "sgpr_spills": row.get(".sgpr_spill_count", 0),
            "float_mode": rsrc1 >> 12 & 255,
            "dx10_clamp": bool(rsrc1 >> 21 & 1),
            "ieee_mode": bool(rsrc1 >> 23 & 1),
            "fp16_overflow": bool(rsrc1 >> 26 & 1),
            "enable_private_segment": bool(rsrc2 & 1),
            "user_sgpr_count": rsrc2 >> 1 & 31,
            "trap_handler": bool(rsrc2 >> 6 & 1),
            "workgroup_id_x": bool(rsrc2 >> 7 & 1),
            "workgroup_id_y": bool(rsrc2 >> 8 & 1),
            "workgroup_id_z": bool(rsrc2 >> 9 & 1),
            "workgroup_info": bool(rsrc2 >> 10 & 1),
            "workitem_id_dims": rsrc2 >> 11 & 3,
            "exception_mask": rsrc2 >> 24 & 127,
            "tg_split": bool(rsrc3 >> 16 & 1),
            "wavefront_size": row[".wavefront_size"],
            "kernarg_preload_dwords": preload % 128,
            "kernarg_preload_offset": preload >> 7,
            "args": [
                {
                    "name": arg.get(".name", ""),
                    "offset": arg[".offset"],
                    "size": arg[".size"],
                    "kind": arg[".value_kind"],
                }
                for arg in row.get(".args", [])
            ],
        }


def compare(data: bytes, arch: str) -> int:
    """Check kernels, variables, code and contents of an image; return the number of kernels."""
    reference = Reference(data)
    with Loaded(data, arch) as loaded:
        assert loaded.error is None
        first = min(s["p_vaddr"] for s in reference.elf.iter_segments("PT_LOAD")) & ~4095
        bias = loaded.base - first
        kernels = loaded.info["kernels"]
        for kernel in kernels:
            kernel["descriptor_address"] -= bias
            kernel["entry_address"] -= bias
        assert kernels == [reference.kernel(row) for row in reference.metadata["amdhsa.kernels"]]
        (code,) = (s for s in reference.elf.iter_segments("PT_LOAD") if s["p_flags"] & 1)
        assert loaded.info["text_address"] - bias == code["p_vaddr"]
        assert loaded.info["text_bytes"] == code["p_filesz"] & ~3
        assert loaded.read(bias + code["p_vaddr"], code["p_filesz"]) == code.data()
        variables = {
            (name, symbol["st_value"], symbol["st_size"])
            for name, symbol in reference.symbols.items()
            if symbol["st_info"]["type"] == "STT_OBJECT" and not name.endswith(".kd")
        }
        found = loaded.info["globals"]
        assert {(g["name"], g["address"] - bias, g["size"]) for g in found} == variables
        return len(kernels)


@pytest.mark.parametrize(
    ("arch", "version"), [("gfx942", 4), ("gfx942", 5), ("gfx942", 6), ("gfx950", 6)]
)
def test_compiled_kernels(arch: str, version: int, tmp_path: Path) -> None:
    data = compile_hip(arch, version, tmp_path)
    assert data[8] == version - 2  # EI_ABIVERSION
    assert compare(data, arch) == 2
    with Loaded(data, arch) as loaded:
        variables = {g["name"]: g for g in loaded.info["globals"]}
        at = {name: g["address"] for name, g in variables.items()}
        assert struct.unpack("<4i", loaded.read(at["table"], 16)) == (11, 22, 33, 44)
        assert struct.unpack("<Q", loaded.read(at["third"], 8)) == (at["table"] + 8,)
        assert loaded.read(at["zeros"], variables["zeros"]["size"]) == bytes(20000)
        assert struct.unpack("<2f", loaded.read(at["coefficient"], 8)) == (1.5, -2.25)
        hidden = [a["kind"] for a in loaded.kernel("first")["args"] if "hidden" in a["kind"]]
        assert ("hidden_group_size_x" in hidden) == (version >= 5)
        assert loaded.kernel("first")["lds_bytes"] == 1024
        assert loaded.kernel("second")["scratch_bytes"] >= 400
        assert loaded.describe(loaded.kernel("second")["entry_address"] + 16) == "second+0x10"
        # A local function: only the full symbol table knows it, and it lies before the kernels.
        assert loaded.describe(loaded.info["text_address"]) == "helper+0x0"
    other = {"gfx942": "gfx950", "gfx950": "gfx942"}[arch]
    with Loaded(data, other) as loaded:
        assert f"the code object is for {arch}" in str(loaded.error)


def test_relocations_of_the_linker(tmp_path: Path) -> None:
    """A preemptible variable: its address in the GOT comes from an R_AMDGPU_ABS64."""
    assembly = """
    .text
    .globl use
    .type use,@function
    use:
      s_getpc_b64 s[0:1]
      s_add_u32 s0, s0, counter@gotpcrel32@lo+4
      s_addc_u32 s1, s1, counter@gotpcrel32@hi+12
      s_endpgm
    .data
    .p2align 3
    .globl counter, where
    .type counter,@object
    .type where,@object
    .size counter, 8
    .size where, 8
    counter: .quad 5
    where: .quad counter+4
    .amdgpu_metadata
    amdhsa.version: [1, 1]
    amdhsa.kernels: []
    .end_amdgpu_metadata
    """
    data = link(assembly, "gfx942", 5, tmp_path)
    elf = elffile.ELFFile(io.BytesIO(data))
    types = [r["r_info_type"] for r in elf.get_section_by_name(".rela.dyn").iter_relocations()]
    assert types == [3, 3]
    got = elf.get_section_by_name(".got")["sh_addr"]
    with Loaded(data) as loaded:
        assert loaded.error is None
        at = {g["name"]: g["address"] for g in loaded.info["globals"]}
        assert struct.unpack("<QQ", loaded.read(at["counter"], 16)) == (5, at["counter"] + 4)
        assert struct.unpack("<Q", loaded.read(loaded.base + got, 8)) == (at["counter"],)


def random_directives(rng: random.Random) -> tuple[dict[str, int], dict[str, Any]]:
    """Return assembler directives of a kernel and what the loader must report."""
    choice = rng.randrange
    accum_offset = 4 * choice(1, 65)
    vgprs = choice(max(1, accum_offset - 3), 513)
    modes = [choice(4) for _ in range(4)]
    flags = [choice(2) for _ in range(13)]
    exceptions = [choice(2) for _ in range(7)]
    dims, lds, scratch = choice(3), 4 * choice(16384), 4 * choice(100)
    # Each user SGPR group has its size; preloaded kernargs follow the others, 16 in all.
    user = {"dispatch_ptr": 2, "queue_ptr": 2, "kernarg_segment_ptr": 2, "dispatch_id": 2}
    chosen = {name: choice(2) for name in user}
    used = sum(user[name] * on for name, on in chosen.items())
    preload = choice(0, 17 - used) if chosen["kernarg_segment_ptr"] else 0
    exception_names = ["fp_ieee_invalid_op", "fp_denorm_src", "fp_ieee_div_zero"]
    exception_names += ["fp_ieee_overflow", "fp_ieee_underflow", "fp_ieee_inexact", "int_div_zero"]
    directives = {
        "next_free_vgpr": vgprs,
        "next_free_sgpr": choice(1, 100),
        "accum_offset": accum_offset,
        "float_round_mode_32": modes[0],
        "float_round_mode_16_64": modes[1],
        "float_denorm_mode_32": modes[2],
        "float_denorm_mode_16_64": modes[3],
        "dx10_clamp": flags[0],
        "ieee_mode": flags[1],
        "fp16_overflow": flags[2],
        "enable_private_segment": flags[3],
        "system_sgpr_workgroup_id_x": flags[4],
        "system_sgpr_workgroup_id_y": flags[5],
        "system_sgpr_workgroup_id_z": flags[6],
        "system_sgpr_workgroup_info": flags[7],
        "uses_dynamic_stack": flags[8],
        "tg_split": flags[9],
        "system_vgpr_workitem_id": dims,
        "group_segment_fixed_size": lds,
        "private_segment_fixed_size": scratch,
        "user_sgpr_kernarg_preload_length": preload,
        "user_sgpr_kernarg_preload_offset": 0,
    }
    directives |= {f"user_sgpr_{name}": on for name, on in chosen.items()}
    directives |= {f"exception_{n}": v for n, v in zip(exception_names, exceptions, strict=True)}
    total = (vgprs + 7) // 8 * 8
    expected = {
        "num_vgprs": min(accum_offset, total),
        "num_agprs": max(total - accum_offset, 0),
        "float_mode": sum(mode << 2 * i for i, mode in enumerate(modes)),
        "dx10_clamp": bool(flags[0]),
        "ieee_mode": bool(flags[1]),
        "fp16_overflow": bool(flags[2]),
        "enable_private_segment": bool(flags[3]),
        "workgroup_id_x": bool(flags[4]),
        "workgroup_id_y": bool(flags[5]),
        "workgroup_id_z": bool(flags[6]),
        "workgroup_info": bool(flags[7]),
        "dynamic_stack": bool(flags[8]),
        "tg_split": bool(flags[9]),
        "workitem_id_dims": dims,
        "exception_mask": sum(on << i for i, on in enumerate(exceptions)),
        "kernarg_preload_dwords": preload,
        "kernarg_preload_offset": 0,
        "user_sgpr_count": used + preload,
        "user_dispatch_ptr": bool(chosen["dispatch_ptr"]),
        "user_queue_ptr": bool(chosen["queue_ptr"]),
        "user_kernarg_ptr": bool(chosen["kernarg_segment_ptr"]),
        "user_dispatch_id": bool(chosen["dispatch_id"]),
        "lds_bytes": lds,
        "scratch_bytes": scratch,
    }
    return directives, expected


def test_descriptors_of_the_assembler(tmp_path: Path) -> None:
    """Descriptors that LLVM encodes from .amdhsa_ directives decode to the same values."""
    rng = random.Random(5)
    code, data, metadata, expected = ".text\n", ".section .rodata\n", "", {}
    for i in range(120):
        name = f"k{i}"
        directives, expected[name] = random_directives(rng)
        code += f".p2align 8\n.globl {name}\n.type {name},@function\n{name}:\n"
        code += "s_endpgm\n" * 128 + f".size {name}, .-{name}\n"
        data += f".p2align 6\n.amdhsa_kernel {name}\n"
        data += "".join(f".amdhsa_{key} {value}\n" for key, value in directives.items())
        data += ".end_amdhsa_kernel\n"
        metadata += f"  - .name: {name}\n    .symbol: {name}.kd\n    .wavefront_size: 64\n"
        metadata += "    .kernarg_segment_size: 64\n    .kernarg_segment_align: 8\n"
        metadata += "    .max_flat_workgroup_size: 512\n    .sgpr_count: 9\n    .vgpr_count: 9\n"
        for key in ("group", "private"):
            size = directives[f"{key}_segment_fixed_size"]
            metadata += f"    .{key}_segment_fixed_size: {size}\n"
    note = f".amdgpu_metadata\namdhsa.version: [1, 1]\namdhsa.kernels:\n{metadata}"
    image = link(code + data + note + ".end_amdgpu_metadata\n", "gfx942", 5, tmp_path)
    with Loaded(image) as loaded:
        assert loaded.error is None
        for name, fields in expected.items():
            kernel = loaded.kernel(name)
            assert {key: kernel[key] for key in fields} == fields
            assert loaded.describe(kernel["entry_address"]) == name + "+0x0"


@pytest.mark.skipif("AMDATTN_AITER_DIR" not in os.environ, reason="needs AMDATTN_AITER_DIR")
def test_objects_of_aiter() -> None:
    root = Path(os.environ["AMDATTN_AITER_DIR"]) / "hsa" / "gfx942"
    files = sorted(root.rglob("*.co"))
    assert len(files) > 100
    for path in files:
        assert compare(path.read_bytes(), "gfx942") >= 1, path
