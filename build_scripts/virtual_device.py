"""Compile the virtual device into shared libraries, one per x86-64 level.

What interprets instructions is compiled once per level, everything else once for all, a folder at a
time; the library that fits the CPU is chosen when it is loaded. The default compiler is pip's
ziglang: no system compiler is needed. `AMDATTN_CXX` names another one (g++ or clang++ >= 12).
Objects are rebuilt when a file that they depend on has changed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "virtual_device"
GLIBC = "2.28"  # the oldest one that the libraries run with
LEVELS = ("v2", "v3")
BASELINE = "v2"
# Sources that are worth a build per level: semantics, arithmetic and the interpreter's loop.
HOT = ("numerics/", "isa/", "check/", "core/worker", "core/wave", "core/abi")
COLD = ("isa/decode", "isa/print", "isa/tables", "isa/encoding_test", "isa/semantics_test")

COMMON_FLAGS = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Wno-pass-failed",  # lane loops that do not vectorise are correct all the same
    "-Werror",
    f"-I{SOURCES}",
)


def library_name(level: str) -> str:
    """File name of the library for one x86-64 level ("v2" or "v3")."""
    return f"libamdattn_vdev_x86_64_{level}.so"


def compiler(level: str) -> list[str]:
    """Command prefix that compiles C++ for one x86-64 level."""
    chosen = os.environ.get("AMDATTN_CXX")
    if chosen:
        return [*shlex.split(chosen), f"-march=x86-64-{level}", "-Wno-unknown-pragmas"]
    target = ["-target", f"x86_64-linux-gnu.{GLIBC}", f"-mcpu=x86_64_{level}"]
    return [sys.executable, "-m", "ziglang", "c++", *target]


def is_hot(source: Path) -> bool:
    """Whether a source file is compiled for each level."""
    name = source.relative_to(SOURCES).as_posix()
    return name.startswith(HOT) and not name.startswith(COLD)


def cold_units(sources: Sequence[Path], work_dir: Path) -> list[Path]:
    """One translation unit for each folder's other sources: they share the cost of the headers."""
    units = []
    for folder in sorted({source.parent for source in sources}):
        members = [s for s in sources if s.parent == folder and not is_hot(s)]
        if not members:
            continue
        unit = work_dir / f"{folder.name}_cold.cc"
        text = "".join(f'#include "{s.relative_to(SOURCES).as_posix()}"\n' for s in members)
        if not unit.exists() or unit.read_text() != text:
            unit.parent.mkdir(parents=True, exist_ok=True)
            unit.write_text(text)
        units.append(unit)
    return units


def is_stale(obj: Path, depfile: Path) -> bool:
    """True when an object is missing or older than what its depfile names."""
    if not obj.exists() or not depfile.exists():
        return True
    built = obj.stat().st_mtime
    _, _, listed = depfile.read_text().partition(":")
    for name in listed.replace("\\\n", " ").split():
        path = Path(name)
        if not path.exists() or path.stat().st_mtime > built:
            return True
    return False


def compile_one(command: Sequence[str], source: Path, obj: Path) -> Path:
    """Compile one source file unless its object is up to date."""
    depfile = obj.with_suffix(".d")
    if is_stale(obj, depfile):
        obj.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                *command,
                *COMMON_FLAGS,
                "-MD",
                "-MF",
                str(depfile),
                "-c",
                str(source),
                "-o",
                str(obj),
            ],
            check=True,
        )
    return obj


def build(levels: Sequence[str], out_dir: Path, work_dir: Path, jobs: int) -> list[Path]:
    """Build the libraries of some levels and return their paths."""
    sources = sorted(SOURCES.rglob("*.cc"))
    units = [*cold_units(sources, work_dir), *filter(is_hot, sources)]  # the long ones first
    tasks: dict[Path, tuple[list[str], Path]] = {}
    objects: dict[str, list[Path]] = {level: [] for level in levels}
    for unit in units:
        hot = unit in sources
        name = unit.relative_to(SOURCES) if hot else Path(unit.name)
        for level in levels:
            own = level if hot else BASELINE
            obj = work_dir / own / name.with_suffix(".o")
            tasks[obj] = (compiler(own), unit)
            # Hot objects first: where a linker merges inline functions it keeps the first copy.
            objects[level].insert(0 if hot else len(objects[level]), obj)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in concurrent.futures.as_completed(
            [pool.submit(compile_one, *task, obj) for obj, task in tasks.items()]
        ):
            done.result()
    out_dir.mkdir(parents=True, exist_ok=True)
    return [link(objects[level], out_dir / library_name(level)) for level in levels]


def link(objects: Sequence[Path], library: Path) -> Path:
    """Link one library unless it is newer than its objects.

    All are linked for the baseline, so that zig builds its libc++ once.
    """
    if library.exists() and all(o.stat().st_mtime <= library.stat().st_mtime for o in objects):
        return library
    subprocess.run(
        [
            *compiler(BASELINE),
            "-shared",
            "-s",
            "-Wl,-soname,libamdattn_vdev.so",
            f"-Wl,--version-script={SOURCES / 'hip' / 'exports.map'}",
            *map(str, objects),
            "-lpthread",
            "-o",
            str(library),
        ],
        check=True,
    )
    return library


def main() -> None:
    """Command line: `python build_scripts/virtual_device.py [--level v3]`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", choices=LEVELS, action="append", help="default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "amdattn" / "_lib")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "virtual_device")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    for library in build(args.level or LEVELS, args.out, args.work, args.jobs):
        print(library)


if __name__ == "__main__":
    main()
