"""Rebuild every code object of hsaco/ and its manifest: `python -m build_scripts.build`."""

from __future__ import annotations

import argparse
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_scripts import manifest
from build_scripts.toolchain import ASM_SRC, LLVM22, Toolchain, compile_hip

ROOT = ASM_SRC.parent
HSACO = ROOT / "hsaco"


@dataclass(frozen=True, slots=True)
class KernelBuild:
    """One code object: its source, its compiler, and what no tool can read off the object."""

    name: str
    arch: str
    source: str  # in asm_src
    header: str  # in asm_src/args
    struct: str
    toolchain: Toolchain
    toolchain_reason: str
    op: str
    dtype: str
    head_dim: int
    head_dim_v: int
    grid: str
    constraints: dict[str, Any]  # the limits of the grid are added from its tiles

    @property
    def symbol(self) -> str:
        """Name of the kernel function, also of the file."""
        return f"amdattn_{self.name}_{self.arch}"

    @property
    def file(self) -> str:
        """Path of the code object, relative to the manifest."""
        return f"{self.arch}/{self.symbol}.hsaco"


KERNELS = (
    KernelBuild(
        name="attn_fwd_bf16_d128",
        arch="gfx942",
        source="kernels/attn_fwd_hd128_bf16.hip",
        header="attn_fwd.h",
        struct="AttnFwdArgs",
        toolchain=LLVM22,
        toolchain_reason="neither LLVM 21 nor 22 spills, equal VGPRs; 22 needs fewer SGPRs",
        op="attn_fwd",
        dtype="bf16",
        head_dim=128,
        head_dim_v=128,
        grid="x=num_heads_q, y=ceil(seqlen_q/q_tile), z=batch",
        constraints={
            "causal": [False],
            "window_size": [[-1, -1]],
            "softcap": [0.0],
            "dropout_p": [0.0],
            "round_mode": ["rtne"],
            "num_splits": [1],
            "gqa": True,
            "layouts": "any, unit last stride",
            "pointer_align_bytes": 16,
            "stride_multiple": 8,
        },
    ),
)

_MAX_GRID_YZ = 65535  # hipDeviceProp_t.maxGridSize[1], [2]
_MAX_GRID_LANES_X = 2**32 - 1  # the dispatch packet counts lanes in 32 bits


@dataclass(frozen=True, slots=True)
class Built:
    """One code object and its manifest row."""

    kernel: KernelBuild
    image: bytes
    row: dict[str, Any]


def build(kernel: KernelBuild) -> Built:
    """Compile one kernel and describe it.

    Raises
    ------
    ToolchainError, CodeObjectError
        It does not compile, spills, or is not what its header says.
    """
    source = ASM_SRC / kernel.source
    compiled = compile_hip(source, kernel.toolchain, kernel.arch)
    code = manifest.CodeObject(compiled.code_object)
    resources = code.resources(kernel.symbol)
    if resources.scratch_bytes or resources.vgpr_spills or resources.sgpr_spills:
        raise manifest.CodeObjectError(f"{kernel.symbol} spills: {resources}")
    q_tile, kv_tile = struct.unpack("<2i", code.data(f"{kernel.symbol}_tiles", 8))
    row = {
        "name": kernel.name,
        "symbol": kernel.symbol,
        "file": kernel.file,
        "arch": kernel.arch,
        "op": kernel.op,
        "dtype": kernel.dtype,
        "head_dim": kernel.head_dim,
        "head_dim_v": kernel.head_dim_v,
        "sha256": manifest.sha256(compiled.code_object),
        "source": str(source.relative_to(ROOT)),
        "source_sha256": {
            str(path.relative_to(ROOT)): manifest.sha256(path.read_bytes())
            for path in compiled.sources
        },
        "toolchain": str(kernel.toolchain),
        "toolchain_reason": kernel.toolchain_reason,
        "target": code.target,
        "code_object_version": code.version,
        "workgroup": [resources.max_workgroup, 1, 1],
        "grid": kernel.grid,
        "q_tile": q_tile,
        "kv_tile": kv_tile,
        "vgpr": resources.vgpr,
        "agpr": resources.agpr,
        "sgpr": resources.sgpr,
        "lds_bytes": resources.lds_bytes,
        "scratch_bytes": resources.scratch_bytes,
        "vgpr_spills": resources.vgpr_spills,
        "sgpr_spills": resources.sgpr_spills,
        "kernarg": manifest.kernarg(
            code, kernel.symbol, ASM_SRC / "args" / kernel.header, kernel.struct
        ),
        "constraints": {
            **kernel.constraints,
            "max_batch": _MAX_GRID_YZ,
            "max_seqlen_q": _MAX_GRID_YZ * q_tile,
            "max_seqlen_kv": 2**31 - 1,
            "max_num_heads_q": _MAX_GRID_LANES_X // resources.max_workgroup,
        },
    }
    return Built(kernel, compiled.code_object, row)


def build_all(target: Path) -> list[Built]:
    """Build every kernel of the table into `target`, with the manifest; stale objects go away."""
    built = [build(kernel) for kernel in KERNELS]
    fresh = {target / result.kernel.file for result in built}
    for stale in set(target.glob("*/*.hsaco")) - fresh:
        stale.unlink()
    for result in built:
        file = target / result.kernel.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(result.image)
    text = manifest.render([result.row for result in built])
    (target / "manifest.json").write_text(text, encoding="utf-8")
    return built


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HSACO, help="target folder (default: hsaco)")
    for result in build_all(parser.parse_args().out):
        row = result.row
        print(
            f"{row['file']}: {len(result.image)} bytes, {row['vgpr']} VGPR, {row['sgpr']} SGPR, "
            f"{row['lds_bytes']} B LDS, {row['toolchain']}"
        )


if __name__ == "__main__":
    main()
