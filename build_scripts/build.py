"""Rebuild every code object of hsaco/ and its manifest: `python -m build_scripts.build`."""

from __future__ import annotations

import argparse
import fnmatch
import functools
import json
import os
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build_scripts import manifest, micro_object
from build_scripts.gemm_members import gemm_members
from build_scripts.toolchain import (
    ASM_SRC,
    CONSTEXPR_STEPS,
    LLVM22,
    Toolchain,
    compile_hip,
    compiler_acc_uses,
)

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
    constraints: dict[str, Any]  # the limits of the grid are added
    names_acc: bool = False  # the source takes the accumulation registers by number
    defines: tuple[str, ...] = ()  # macros that choose this member of the source's family
    flags: tuple[str, ...] = ()  # of the compiler, besides those of all

    @property
    def symbol(self) -> str:
        """Name of the kernel function, also of the file."""
        return f"amdattn_{self.name}_{self.arch}"

    @property
    def file(self) -> str:
        """Path of the code object, relative to the manifest."""
        return f"{self.arch}/{self.symbol}.hsaco"


# Whole tiles and parts of tiles; rows of the tiles that are in parts.
WORK_GRID = "x=whole_tiles+split_tiles*parts"
MERGE_GRID = "x=split_tiles*ceil(tile_rows/q_tile)"
# Rows of K or V: each lane of a workgroup has 8 columns of one.
GATHER_GRID = "x=ceil(seqlen/(lanes/(columns/8))), y=num_heads_kv, z=batch"


def family_constraints(head_dim: int, round_mode: str, capped: bool) -> dict[str, Any]:
    """What a member of the attention forward family implements."""
    return {
        # First, last and step. Columns are 16 bytes at a time; those of O that one workgroup has
        # no room for are another's.
        "head_dims": [8, head_dim, 8],
        "head_dims_v": [8, 256, 8],
        "causal": [False, True],
        "window_size": "any",
        "max_window_keys": 2**31 - 1,
        # Least and greatest. A capped score is right to 2**-21 of the cap.
        "softcaps": [2.0**-10, 2.0**10] if capped else [0.0, 0.0],
        "dropout_p": [0.0],
        "round_mode": [round_mode],
        "return_lse": [False, True],
        "sinks": [False, True],
        "varlen": [False, True],
        "top_left": [False, True],
        "max_num_splits": 16,
        "max_tile_heads": 1,
        "gqa": True,
        "layouts": "any, unit last stride",
        "pointer_align_bytes": 16,
        "stride_multiple": 8,
        # Rows of K and V are addressed by 32-bit offsets within a block of 32 rows.
        "kv_stride_seq": [0, 2**25 - 1],
    }


def narrow_constraints(head_dim: int, round_mode: str) -> dict[str, Any]:
    """The same of a kernel for narrow windows."""
    return {
        **family_constraints(head_dim, round_mode, capped=False),
        "head_dims_v": [8, head_dim, 8],
        # Keys that a row sees: asm_src/attn/narrow.h, kMostKeys.
        "max_window_keys": 129,
        # Its parts have some of a tile's heads each, and are final.
        "max_tile_heads": 4,
        "max_num_splits": 1,
        # Rows of K and V are addressed by 32-bit offsets within 144 of them.
        "kv_stride_seq": [0, 2**22 - 1],
    }


# The attention forward family: dtype, head_dim, head_dim_v, q rows of a wave, rounding.
# As many rows as the registers hold: each operand from LDS then meets most rows. And fewer, for
# masks that cut tiles and grids that are small; those are named by their rows, without softcap.
_FAMILY = (
    ("bf16", 128, 128, 96, ("rtne", "rtna", "rtz")),
    ("bf16", 64, 64, 128, ("rtne", "rtna", "rtz")),
    ("bf16", 192, 128, 64, ("rtne", "rtna", "rtz")),
    ("bf16", 256, 128, 64, ("rtne", "rtna", "rtz")),
    ("fp16", 128, 128, 96, ("rtne",)),
    ("fp16", 64, 64, 128, ("rtne",)),
    ("fp16", 192, 128, 64, ("rtne",)),
    ("fp16", 256, 128, 64, ("rtne",)),
    ("bf16", 128, 128, 64, ("rtne", "rtna", "rtz")),
    ("bf16", 64, 64, 64, ("rtne", "rtna", "rtz")),
    ("fp16", 128, 128, 64, ("rtne",)),
    ("fp16", 64, 64, 64, ("rtne",)),
)
_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
_ROUNDING = {"rtne": "kNearestEven", "rtna": "kNearestAway", "rtz": "kTowardZero"}
_WAVES = 4


_attention = functools.partial(
    KernelBuild, arch="gfx942", header="attn_fwd.h", struct="AttnFwdArgs", toolchain=LLVM22
)


def _member(
    op: str,
    dtype: str,
    head_dim: int,
    head_dim_v: int,
    wave_rows: int,
    round_mode: str,
    capped: bool = False,
    by_rows: bool = False,
) -> KernelBuild:
    """The forward kernel of a member of the family, or the one that merges its parts."""
    merges = op == "attn_merge"
    tile_rows = _WAVES * wave_rows
    dims = f"d{head_dim}" if head_dim == head_dim_v else f"d{head_dim}x{head_dim_v}"
    rows = f"_q{tile_rows}" * by_rows
    name = f"{op}_{dtype}_{dims}{rows}{'_softcap' * capped}_{round_mode}"
    defines = {
        "KERNEL": f"amdattn_{name}_gfx942",
        "HEAD_DIM_V": str(head_dim_v),
        "ELEMENT": _ELEMENT[dtype],
        "ROUNDING": _ROUNDING[round_mode],
        **(
            {"TILE_ROWS": str(tile_rows)}
            if merges
            else {
                "HEAD_DIM": str(head_dim),
                "WAVE_ROWS": str(wave_rows),
                "CAPPED": str(capped).lower(),
            }
        ),
    }
    return _attention(
        name=name,
        source=f"kernels/{op}.hip",
        toolchain_reason="neither LLVM 21 nor 22 spills; the order of the loop is the source's",
        op=op,
        dtype=dtype,
        head_dim=head_dim,
        head_dim_v=head_dim_v,
        grid=MERGE_GRID if merges else WORK_GRID,
        constraints=(
            {"tile_rows": [tile_rows], "round_mode": [round_mode]}
            if merges
            else family_constraints(head_dim, round_mode, capped)
        ),
        names_acc=not merges,
        # Constants stay where they are used. Before a loop they take registers that it needs.
        flags=() if merges else ("-mllvm", "-disable-machine-licm", CONSTEXPR_STEPS),
        defines=tuple(f"{name}={value}" for name, value in defines.items()),
    )


def _narrow(dtype: str, head_dim: int, round_mode: str) -> KernelBuild:
    """The forward kernel for narrow windows."""
    name = f"attn_fwd_{dtype}_d{head_dim}_narrow_{round_mode}"
    return _attention(
        name=name,
        source="kernels/attn_fwd_narrow.hip",
        toolchain_reason="neither LLVM 21 nor 22 spills; 22 leaves fewer moves between registers",
        op="attn_fwd",
        dtype=dtype,
        head_dim=head_dim,
        head_dim_v=head_dim,
        grid=WORK_GRID,
        constraints=narrow_constraints(head_dim, round_mode),
        # Packed instructions would wait for the matrix unit.
        flags=("-fno-slp-vectorize",),
        defines=(
            f"KERNEL=amdattn_{name}_gfx942",
            f"HEAD_DIM={head_dim}",
            f"ELEMENT={_ELEMENT[dtype]}",
            f"ROUNDING={_ROUNDING[round_mode]}",
        ),
    )


def _family() -> Iterator[KernelBuild]:
    """Every member, and the kernels that merge their parts: one for all parts that are alike."""
    merged, largest = set(), set()
    for dtype, head_dim, head_dim_v, wave_rows, round_modes in _FAMILY:
        by_rows = (dtype, head_dim, head_dim_v) in largest
        largest.add((dtype, head_dim, head_dim_v))
        for round_mode in round_modes:
            sizes = dtype, head_dim, head_dim_v, wave_rows, round_mode
            for capped in (False,) if by_rows else (False, True):
                yield _member("attn_fwd", *sizes, capped, by_rows)
            parts = dtype, head_dim_v, wave_rows, round_mode
            if parts not in merged:
                yield _member("attn_merge", *sizes, by_rows=by_rows)
            merged.add(parts)


KERNELS = (
    *_family(),
    *(_narrow("bf16", 64, round_mode) for round_mode in ("rtne", "rtna", "rtz")),
    _narrow("fp16", 64, "rtne"),
    KernelBuild(
        name="gather_rows",
        arch="gfx942",
        source="kernels/gather_rows.hip",
        header="gather_rows.h",
        struct="GatherRowsArgs",
        toolchain=LLVM22,
        toolchain_reason="as the kernels that read what it writes",
        op="gather_rows",
        dtype="u16",
        head_dim=256,
        head_dim_v=256,
        grid=GATHER_GRID,
        constraints={"head_dims": [8, 256, 8], "pointer_align_bytes": 16, "stride_multiple": 8},
        defines=("KERNEL=amdattn_gather_rows_gfx942",),
    ),
    *(KernelBuild(**member) for member in gemm_members()),
)

_MAX_GRID_YZ = 65535  # hipDeviceProp_t.maxGridSize[1], [2]
_MAX_GRID_LANES_X = 2**32 - 1  # the dispatch packet counts lanes in 32 bits
_MAX_INT32 = 2**31 - 1
# Row + diagonal + window must not overflow 32 bits.
_MAX_ROWS = 2**30


def _limits(grid: str, q_tile: int, lanes: int) -> dict[str, int]:
    """The greatest problems that a grid of workgroups of `lanes` lanes covers."""
    workgroups = _MAX_GRID_LANES_X // lanes
    if grid == WORK_GRID:
        return {
            "max_batch": _MAX_INT32,
            "max_seqlen_q": _MAX_ROWS,
            "max_seqlen_kv": _MAX_ROWS,
            "max_num_heads_q": _MAX_INT32,
            "max_workgroups": workgroups,
        }
    if grid == GATHER_GRID:
        return {
            "max_batch": _MAX_GRID_YZ,
            "max_num_heads_kv": _MAX_GRID_YZ,
            "max_workgroups_x": workgroups,
        }
    return {"max_workgroups": workgroups}


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
    compiled = compile_hip(source, kernel.toolchain, kernel.arch, kernel.defines, kernel.flags)
    code = manifest.CodeObject(compiled.code_object)
    resources = code.resources(kernel.symbol)
    if resources.scratch_bytes or resources.vgpr_spills or resources.sgpr_spills:
        raise manifest.CodeObjectError(f"{kernel.symbol} spills: {resources}")
    if kernel.names_acc and (taken := compiler_acc_uses(compiled.assembly)):
        raise manifest.CodeObjectError(f"{kernel.symbol}: the compiler uses AGPRs: {taken[:3]}")
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
            **_limits(kernel.grid, q_tile, resources.max_workgroup),
        },
    }
    return Built(kernel, compiled.code_object, row)


def build_all(target: Path, only: Sequence[str] = ("*",)) -> list[Built]:
    """Build kernels of the table into `target`, with the manifest; stale objects go away.

    The micro kernels are assembled besides, whichever are chosen.

    only : patterns of names; of other kernels `target` must hold the objects and the rows.

    Raises
    ------
    ValueError
        No kernel has such a name, or one that is not built is not there.
    """
    chosen = [k for k in KERNELS if any(fnmatch.fnmatchcase(k.name, each) for each in only)]
    if not chosen:
        raise ValueError(f"only={list(only)} matches none of {[k.name for k in KERNELS]}")
    rows = {} if len(chosen) == len(KERNELS) else _rows(target)
    missing = {k.name for k in KERNELS} - {k.name for k in chosen} - rows.keys()
    if missing:
        raise ValueError(f"only={list(only)} leaves out {sorted(missing)}, not in {target}")
    # The compiler is a process of its own: threads suffice to keep the cores busy.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(build, chosen))
    micro = micro_object.write(target)
    for stale in set(target.glob("*/*.hsaco")) - {micro, *(target / k.file for k in KERNELS)}:
        stale.unlink()
    for result in built:
        file = target / result.kernel.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(result.image)
        rows[result.kernel.name] = result.row
    text = manifest.render([rows[kernel.name] for kernel in KERNELS])
    (target / "manifest.json").write_text(text, encoding="utf-8")
    return built


def _rows(target: Path) -> dict[str, dict[str, Any]]:
    text = (target / "manifest.json").read_text(encoding="utf-8")
    return {row["name"]: row for row in json.loads(text)["kernels"]}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HSACO, help="target folder (default: hsaco)")
    told = "kernels by name or pattern, such as 'gemm_nt_*'; the others stay as they are"
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help=told)
    arguments = parser.parse_args()
    for result in build_all(arguments.out, arguments.only):
        row = result.row
        print(
            f"{row['file']}: {len(result.image)} bytes, {row['vgpr']} VGPR, {row['sgpr']} SGPR, "
            f"{row['lds_bytes']} B LDS, {row['toolchain']}"
        )


if __name__ == "__main__":
    main()
