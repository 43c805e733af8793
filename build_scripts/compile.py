"""Compile one HIP source that is in no table: `python -m build_scripts.compile NAME.hip`.

Writes NAME.hsaco beside it, and says what its kernels need.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.compiler import DEFAULT_ARCH
from build_scripts.manifest import CodeObject
from build_scripts.toolchain import LLVM22, compile_hip


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="a .hip file; asm_src/ is on its include path")
    parser.add_argument("-D", "--define", action="append", default=[], metavar="NAME[=VALUE]")
    parser.add_argument("--arch", choices=tuple(ARCHITECTURES), default=DEFAULT_ARCH)
    parser.add_argument("--assembly", action="store_true", help="write NAME.s as well")
    arguments = parser.parse_args()
    compiled = compile_hip(arguments.source, LLVM22, arguments.arch, tuple(arguments.define))
    target = arguments.source.with_suffix(".hsaco")
    target.write_bytes(compiled.code_object)
    if arguments.assembly:
        target.with_suffix(".s").write_text(compiled.assembly, encoding="utf-8")
    code = CodeObject(compiled.code_object)
    for kernel in code.kernels:
        print(f"{target}: {kernel}, {code.resources(kernel)}")


if __name__ == "__main__":
    main()
