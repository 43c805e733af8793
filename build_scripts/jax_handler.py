"""Compile the handler of XLA's FFI (amdattn/jax/native) into a shared library.

C with a header of its own for XLA's ABI: no jaxlib is needed, at build time or in the library.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from build_scripts.virtual_device import GLIBC, ROOT, own_compiler

SOURCES = ROOT / "amdattn" / "jax" / "native"
NAME = "libamdattn_xla.so"
FLAGS = ("-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")


def compiler() -> list[str]:
    """Pip's, or the C compiler beside the C++ compiler that AMDATTN_CXX names."""
    if not own_compiler():
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"x86_64-linux-gnu.{GLIBC}"]
    name, *rest = own_compiler()
    for of_cxx, of_c in (("clang++", "clang"), ("g++", "gcc"), ("c++", "cc")):
        if of_cxx in name:
            return [name.replace(of_cxx, of_c), *rest]
    return [name, *rest]


def build(target_dir: Path) -> Path:
    """Compile into `target_dir`, unless the library there is newer than its sources."""
    library = target_dir / NAME
    sources = sorted(SOURCES.glob("*.c"))
    read = [*sources, *SOURCES.glob("*.h"), Path(__file__)]
    if library.exists() and library.stat().st_mtime > max(p.stat().st_mtime for p in read):
        return library
    target_dir.mkdir(parents=True, exist_ok=True)
    unfinished = library.with_suffix(".tmp")
    subprocess.run(
        [*compiler(), *FLAGS, "-shared", "-s", "-o", str(unfinished), *map(str, sources)],
        check=True,
    )
    unfinished.replace(library)
    return library


def main() -> None:
    """Print where the library is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=ROOT / "amdattn" / "_lib")
    print(build(parser.parse_args().target))


if __name__ == "__main__":
    main()
