"""How fast the virtual device interprets, measured on this CPU.

    python benchmarks/virtual_device.py [--json out.json]

Instruction rates come from loops of one instruction (64 copies, full EXEC, operands random), timed
end to end through the launch path: decoding, dispatch and the scheduler are included. Every figure
is the best of several runs, because hosts are shared. No rate depends on what operands hold.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")

import amdattn
from amdattn.device import runtime
from amdattn.device.runtime.hip_python import import_hip_python

COPIES, PASSES, RUNS = 64, 8000, 7
# Text of one instruction, and the floating-point operations of one execution.
INSTRUCTIONS: dict[str, tuple[str, int]] = {
    "v_add_f32": ("v_add_f32 v{d}, v8, v9", 64),
    "v_fma_f32": ("v_fma_f32 v{d}, v8, v9, v10", 128),
    "v_pk_fma_f32": ("v_pk_fma_f32 v[{e}:{e1}], v[8:9], v[10:11], v[12:13]", 256),
    "v_exp_f32": ("v_exp_f32 v{d}, v8", 0),
    "v_perm_b32": ("v_perm_b32 v{d}, v8, v9, s20", 0),
    "v_mul_lo_u32": ("v_mul_lo_u32 v{d}, v8, v9", 0),
    "s_add_u32": ("s_add_u32 s22, s22, s21", 0),
    "ds_read_b128": ("ds_read_b128 v[{q}:{q3}], v14", 0),
    "global_load_dwordx4": ("global_load_dwordx4 v[{q}:{q3}], v15, s[2:3]", 0),
    "v_mfma_f32_16x16x16_bf16": (
        "v_mfma_f32_16x16x16_bf16 a[{m}:{m3}], v[8:9], v[10:11], a[{m}:{m3}]",
        2 * 16 * 16 * 16,
    ),
    "v_mfma_f32_32x32x8_bf16": (
        "v_mfma_f32_32x32x8_bf16 a[{w}:{w15}], v[8:9], v[10:11], a[{w}:{w15}]",
        2 * 32 * 32 * 8,
    ),
}

TEMPLATE = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
.text
.globl bench
.p2align 8
.type bench,@function
bench:
  s_load_dwordx2 s[2:3], s[0:1], 0x0
  s_load_dword s4, s[0:1], 0x8
  v_and_b32 v0, 0x3ff, v0
  v_lshlrev_b32 v15, 4, v0
  v_mov_b32 v14, v15
  s_mov_b32 s20, 0x07060302
  s_mov_b32 s21, 3
  s_mov_b32 s22, 0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx4 v[8:11], v15, s[2:3]
  global_load_dwordx2 v[12:13], v15, s[2:3]
  s_waitcnt vmcnt(0)
{init}
loop:
{body}
  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 loop
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel bench
  .amdhsa_group_segment_fixed_size 4096
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 192
  .amdhsa_accum_offset 128
  .amdhsa_next_free_sgpr 32
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: bench
    .symbol: bench.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 4096
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 32
    .vgpr_count: 192
    .max_flat_workgroup_size: 64
    .args:
      - {{.size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}}
      - {{.size: 4, .offset: 8, .value_kind: by_value}}
...
.end_amdgpu_metadata
"""


def assemble(text: str) -> bytes:
    """Code object of a kernel that executes `text` COPIES times a pass."""
    lines = []
    for i in range(COPIES):
        d, e, q, m, w = 16 + i % 32, 16 + 2 * (i % 16), 16 + 4 * (i % 8), 4 * (i % 4), 16 * (i % 2)
        fields = {"d": d, "e": e, "e1": e + 1, "q": q, "q3": q + 3}
        fields |= {"m": m, "m3": m + 3, "w": w, "w15": w + 15}
        lines.append("  " + text.format(**fields))
    init = "\n".join(f"  v_accvgpr_write_b32 a{i}, 0" for i in range(32))
    source = TEMPLATE.format(body="\n".join(lines), init=init)
    zig = [sys.executable, "-m", "ziglang"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "k.s").write_text(source)
        target = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942"]
        clang = [*zig, "clang", *target, "-x", "assembler", "-c", "k.s", "-o", "k.o"]
        subprocess.run(clang, cwd=folder, check=True)
        link = [*zig, "ld.lld", "-shared", "k.o", "-o", "k.hsaco"]
        subprocess.run(link, cwd=folder, check=True)
        return (folder / "k.hsaco").read_bytes()


class Bench:
    """Launches the loops."""

    def __init__(self) -> None:
        runtime.get()
        self.hip: Any = import_hip_python().hip
        rng = np.random.default_rng(0)
        self.data = rng.standard_normal(4096).astype(ml_dtypes.bfloat16)
        self.address = int(self.call("hipMalloc", self.data.nbytes))
        kind = self.hip.hipMemcpyKind(1)
        self.call("hipMemcpy", self.address, self.data.ctypes.data, self.data.nbytes, kind)

    def call(self, name: str, *args: Any) -> Any:
        """One HIP call; raises when it fails."""
        error, *results = getattr(self.hip, name)(*args)
        if int(error):
            raise RuntimeError(f"{name}: {error!r} {amdattn.virtual.last_report()}")
        return results[0] if results else None

    def seconds(self, function: Any, passes: int) -> float:
        """Best time of one launch of one wave."""
        best = float("inf")
        args = (ctypes.c_uint64(self.address), ctypes.c_int(passes))
        for _ in range(RUNS):
            start = time.perf_counter()
            self.call("hipModuleLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, None, args)
            self.call("hipDeviceSynchronize")
            best = min(best, time.perf_counter() - start)
        return best

    def rate(self, text: str) -> float:
        """Executions per second on one core."""
        module = self.call("hipModuleLoadData", assemble(text))
        function = self.call("hipModuleGetFunction", module, b"bench")
        self.seconds(function, 10)
        return COPIES * PASSES / self.seconds(function, PASSES)


def attention_seconds(seqlen: int) -> float:
    """Best time of one attention of one head, head_dim 128, on all cores."""
    rng = np.random.default_rng(0)
    shape = (1, seqlen, 1, 128)
    q, k, v = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for _ in range(3))
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        amdattn.flash_attn_func(q, k, v)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Measure, print a table, optionally write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seqlen", type=int, default=8192)
    args = parser.parse_args()
    console = Console()
    amdattn.virtual.set_option("threads", 1)
    bench = Bench()
    rates = {
        name: bench.rate(text)
        for name, (text, _) in track(INSTRUCTIONS.items(), "instructions", transient=True)
    }
    amdattn.virtual.set_option("threads", 0)
    attention = attention_seconds(args.seqlen)
    table = Table(title="Virtual device, measured on this CPU (best of several runs)")
    table.add_column("instruction, one core")
    table.add_column("M wave-instr/s", justify="right")
    table.add_column("GFLOP/s", justify="right")
    for name, rate in rates.items():
        flops = INSTRUCTIONS[name][1]
        table.add_row(name, f"{rate / 1e6:.1f}", f"{rate * flops / 1e9:.1f}" if flops else "")
    console.print(table)
    shape = f"(1, 1, {args.seqlen}, {args.seqlen}, 128)"
    cores = os.cpu_count()
    console.print(f"attention {shape}: {attention:.2f} s on {cores} cores, copies included")
    if args.json:
        record = {
            "kind": "measured on this CPU",
            "cpu": platform.processor() or platform.machine(),
            "cores": cores,
            "instructions_per_second": rates,
            "attention_seconds": {shape: attention},
        }
        args.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
