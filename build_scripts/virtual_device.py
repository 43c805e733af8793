"""Compile the virtual device into shared libraries, one per x86-64 level.

The default compiler is pip's ziglang: no system compiler is needed. `AMDATTN_CXX` names another
one (g++ or clang++ >= 12). Objects are rebuilt when a file that they depend on has changed.
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
LEVELS = ("v2", "v3")
GLIBC = "2.28"

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
    f"-I{ROOT}",
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
            [*command, *COMMON_FLAGS, "-MD", "-MF", str(depfile), "-c", str(source), "-o", str(obj)],
            check=True,
        )
    return obj


def build(level: str, out_dir: Path, work_dir: Path, jobs: int) -> Path:
    """Build the library for one level and return its path."""
    command = compiler(level)
    sources = sorted(SOURCES.rglob("*.cc"))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        objects = list(
            pool.map(
                lambda s: compile_one(
                    command, s, work_dir / level / s.relative_to(SOURCES).with_suffix(".o")
                ),
                sources,
            )
        )
    out_dir.mkdir(parents=True, exist_ok=True)
    library = out_dir / library_name(level)
    if not library.exists() or any(o.stat().st_mtime > library.stat().st_mtime for o in objects):
        subprocess.run(
            [
                *command,
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
    for level in args.level or LEVELS:
        print(build(level, args.out, args.work, args.jobs))


if __name__ == "__main__":
    main()
