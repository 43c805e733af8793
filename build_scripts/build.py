"""Bring code objects of hsaco/ and its manifest up to date: `python -m build_scripts.build`."""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import os
import pkgutil
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import build_scripts
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.dtypes import as_dtype
from build_scripts import manifest, micro_object, packed_objects
from build_scripts.limits import workgroups
from build_scripts.memo import compile_changed
from build_scripts.toolchain import ASM_SRC, Compiled, Toolchain, compile_hip, compiler_acc_uses

ROOT = ASM_SRC.parent
HSACO = ROOT / "hsaco"

Compiler = Callable[[Path, Toolchain, str, tuple[str, ...], tuple[str, ...]], Compiled]


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
    params: dict[str, Any]  # what it was compiled for, besides
    tile: tuple[str, ...]  # axes of which the object states its tile's sizes
    grid: str
    accepts: dict[str, Any]
    limits: Callable[[int], dict[str, int]] = workgroups  # of the grid, by lanes; also accepted
    names_acc: bool = False  # the source takes the accumulation registers by number
    defines: tuple[str, ...] = ()  # macros that choose this member of the source's family
    flags: tuple[str, ...] = ()  # of the compiler, besides those of all

    @property
    def symbol(self) -> str:
        """Name of the kernel function, also of the file."""
        return f"amdattn_{self.name}_{self.arch}"

    @property
    def all_defines(self) -> tuple[str, ...]:
        """Macros of the compiler: the symbol, and what chooses the member."""
        return (f"KERNEL={self.symbol}", *self.defines)

    @property
    def file(self) -> str:
        """Path of the code object, relative to the manifest."""
        return f"{self.arch}/{self.symbol}.hsaco"


def _members() -> Iterator[dict[str, Any]]:
    """Rows of every module NAME_members of this package, from its function of that name."""
    suffix = "_members"
    names = [module.name for module in pkgutil.iter_modules(build_scripts.__path__)]
    # Families before those that are named after them: of equal choices the first is taken.
    for name in sorted(one.removesuffix(suffix) for one in names if one.endswith(suffix)):
        module = import_module(f"build_scripts.{name}{suffix}")
        yield from getattr(module, f"{name}{suffix}")()


def _table() -> Iterator[KernelBuild]:
    """Every kernel for every architecture that its row lists: all of them, if it lists none."""
    members = tuple(_members())
    for arch in ARCHITECTURES:
        for member in members:
            row = dict(member)
            if arch in row.pop("archs", ARCHITECTURES):
                yield KernelBuild(arch=arch, **row)


KERNELS = tuple(_table())


@dataclass(frozen=True, slots=True)
class Built:
    """One code object and its manifest row."""

    kernel: KernelBuild
    image: bytes
    row: dict[str, Any]


def build(kernel: KernelBuild, compiler: Compiler | None = None) -> Built:
    """Compile one kernel, by `compile_hip` if not told, and describe it.

    Raises
    ------
    ToolchainError, CodeObjectError
        It does not compile, spills, or is not what its header says.
    """
    source = ASM_SRC / kernel.source
    asked = kernel.toolchain, kernel.arch, kernel.all_defines, kernel.flags
    compiled = (compiler or compile_hip)(source, *asked)
    code = manifest.CodeObject(compiled.code_object)
    resources = code.resources(kernel.symbol)
    if resources.scratch_bytes or resources.vgpr_spills or resources.sgpr_spills:
        raise manifest.CodeObjectError(f"{kernel.symbol} spills: {resources}")
    if kernel.names_acc and (taken := compiler_acc_uses(compiled.assembly)):
        raise manifest.CodeObjectError(f"{kernel.symbol}: the compiler uses AGPRs: {taken[:3]}")
    sizes = struct.unpack("<2i", code.data(f"{kernel.symbol}_tiles", 8))
    row = {
        "name": kernel.name,
        "symbol": kernel.symbol,
        "file": kernel.file,
        "arch": kernel.arch,
        "op": kernel.op,
        "dtype": as_dtype(kernel.dtype).name,
        "params": kernel.params,
        "tile": dict(zip(kernel.tile, sizes, strict=False)),
        "accepts": {**kernel.accepts, **kernel.limits(resources.max_workgroup)},
        "sha256": manifest.sha256(compiled.code_object),
        "bytes": len(compiled.code_object),
        "source": str(source.relative_to(ROOT)),
        "source_sha256": {
            str(path.relative_to(ROOT)): manifest.source_sha256(path) for path in compiled.sources
        },
        "toolchain": str(kernel.toolchain),
        "toolchain_reason": kernel.toolchain_reason,
        "target": code.target,
        "code_object_version": code.version,
        "workgroup": [resources.max_workgroup, 1, 1],
        "grid": kernel.grid,
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
    }
    return Built(kernel, compiled.code_object, row)


def build_all(
    target: Path,
    only: Sequence[str] = ("*",),
    archs: Collection[str] = tuple(ARCHITECTURES),
    compiler: Compiler | None = None,
) -> list[Built]:
    """Build kernels of the table into `target`, with the manifest; stale objects go away.

    The micro kernels are assembled besides, whichever are chosen.

    only : patterns of names; of other kernels `target` must hold the objects and the rows.
    archs : of those the kernels for these architectures.
    compiler : what compiles them, if not `compile_hip`.

    Raises
    ------
    ValueError
        No kernel has such a name, or one that is not built is not there.
    """
    chosen = [
        k
        for k in KERNELS
        if k.arch in archs and any(fnmatch.fnmatchcase(k.name, each) for each in only)
    ]
    chose = f"only={list(only)}, archs={list(archs)}"
    if not chosen:
        names = {k.name for k in KERNELS if k.arch in archs}
        near = [name for each in only for name in difflib.get_close_matches(each, names)]
        raise ValueError(
            f"{chose} matches none of {len(names)} kernels; nearest: {', '.join(near) or 'none'}"
        )
    rows = {} if len(chosen) == len(KERNELS) else manifest.read_rows(target)
    missing = {k.symbol for k in KERNELS} - {k.symbol for k in chosen} - rows.keys()
    if missing:
        raise ValueError(f"{chose} leaves out {sorted(missing)}, not in {target}")
    # The compiler is a process of its own: threads suffice to keep the cores busy.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(lambda kernel: build(kernel, compiler), chosen))
    rows |= {result.kernel.symbol: result.row for result in built}
    text = manifest.render([rows[kernel.symbol] for kernel in KERNELS])
    micro_object.write(target)
    images = {result.kernel.symbol: result.image for result in built}
    for arch in ARCHITECTURES:
        there = packed_objects.read_folder(target / arch)
        families: dict[str, packed_objects.Images] = {}
        for kernel in KERNELS:
            if kernel.arch == arch:
                name = Path(kernel.file).name
                image = images.get(kernel.symbol) or there[name]
                families.setdefault(kernel.op, {})[name] = image
        packed_objects.write_folder(target / arch, families)
    (target / "manifest.json").write_text(text, encoding="utf-8")
    return built


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HSACO, help="target folder (default: hsaco)")
    told = "kernels by name or pattern, such as 'gemm_nt_*'; the others stay as they are"
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help=told)
    known = tuple(ARCHITECTURES)
    told = "for these architectures only; default: all"
    parser.add_argument("--arch", nargs="+", default=known, choices=known, help=told)
    arguments = parser.parse_args()
    for result in build_all(arguments.out, arguments.only, arguments.arch, compile_changed):
        row = result.row
        print(
            f"{row['file']}: {len(result.image)} bytes, {row['vgpr']} VGPR, {row['sgpr']} SGPR, "
            f"{row['lds_bytes']} B LDS, {row['toolchain']}"
        )


if __name__ == "__main__":
    main()
