"""Compiles HIP sources to code objects with the clang of the Python package ziglang.

ROCm is not needed.
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from amdattn.arch.products import REFERENCE
from amdattn.errors import AmdattnError

CODE_OBJECT_VERSION = 5  # the newest that ROCm 6.0 loads
DEFAULT_ARCH = REFERENCE.arch
# Of <hip/hip_runtime.h>, where there is no ROCm.
INCLUDE = Path(__file__).resolve().parent / "include"


class CompileError(AmdattnError):
    """There is no compiler, or it refused a source; the message is the compiler's."""


@dataclass(frozen=True, slots=True)
class Built:
    """A compiled source.

    Attributes
    ----------
    code_object : bytes
        ELF shared object with line numbers, for hipModuleLoadData.
    assembly : str
        The compiler's assembly, for people.
    warnings : str
        Messages of the compiler, or "".
    """

    code_object: bytes
    assembly: str
    warnings: str


def device_flags(arch: str) -> list[str]:
    """Options by which clang compiles HIP to device code, regardless of what else is installed."""
    return [
        *("-x", "hip", f"--offload-arch={arch}", "--cuda-device-only"),
        *("-nogpulib", "-nogpuinc", "-nostdinc", "-nostdinc++", "-fuse-cuid=none"),
        *("-std=c++20", "-O3", f"-mcode-object-version={CODE_OBJECT_VERSION}"),
    ]


def assembler_flags(arch: str) -> list[str]:
    """Options by which clang assembles its own output."""
    return [
        *("-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}"),
        *(f"-mcode-object-version={CODE_OBJECT_VERSION}", "-x", "assembler"),
    ]


def build(
    source: Path,
    arch: str = DEFAULT_ARCH,
    defines: Sequence[str] = (),
    includes: Sequence[Path] = (),
    flags: Sequence[str] = (),
) -> Built:
    """Compile one HIP source.

    Parameters
    ----------
    source : Path
        Device code; `#include <hip/hip_runtime.h>` finds a small header of this package.
    arch : str
        Target of the device, such as "gfx942".
    defines : sequence of str
        Macros, "NAME" or "NAME=value".
    includes : sequence of Path
        Folders of headers, in addition to the folder of the source.
    flags : sequence of str
        Further options of clang, passed on unchanged: the caller is responsible for what they make
        it read, write or load.

    Raises
    ------
    CompileError
        ziglang is not installed, or the compiler reports an error.
    ValueError
        `arch` is not the name of a target, or a path has a line break, which assembly cannot name.
    """
    source = source.resolve()
    folders = [folder.resolve() for folder in includes]
    for name, path in (("source", source), *(("includes", folder) for folder in folders)):
        if {"\n", "\r"} & set(str(path)):
            raise ValueError(f"{name} {str(path)!r} must have no line break in its path")
    if not re.fullmatch(r"gfx[0-9a-f]+", arch):
        raise ValueError(f"arch={arch!r} must be a target such as {DEFAULT_ARCH!r}")
    zig = _zig()
    with tempfile.TemporaryDirectory(prefix="amdattn-build-") as name:
        work = Path(name)
        assembly, linked = work / "kernel.s", work / "kernel.hsaco"
        warnings = _run(
            [
                *(str(zig), "clang", *device_flags(arch), "-ffreestanding"),
                *("-fhip-kernel-arg-name", "-gline-tables-only", "-Wall", "-Wextra"),
                *(f"-D{define}" for define in defines),
                *(f"-I{folder}" for folder in folders),
                *("-isystem", str(INCLUDE), "-isystem", str(zig.parent / "lib" / "include")),
                *flags,
                # By its whole path: "-o.hip" would be an option, "@k.hip" a file of arguments.
                *("-S", str(source), "-o", str(assembly)),
            ],
            source.parent,
        )
        _run(
            [str(zig), "clang", *assembler_flags(arch), "-c", assembly.name, "-o", "kernel.o"],
            work,
        )
        _run(
            [
                *(str(zig), "ld.lld", "-shared", "--no-undefined", "--build-id=none"),
                *("kernel.o", "-o", linked.name),
            ],
            work,
        )
        text = assembly.read_text(encoding="utf-8", errors="replace")  # it names the source
        return Built(linked.read_bytes(), text, warnings)


def _zig() -> Path:
    try:
        installed = importlib.metadata.distribution("ziglang")
    except importlib.metadata.PackageNotFoundError:
        raise CompileError(
            "the compiler is not installed; it comes with the Python package ziglang: "
            "pip install 'amdattn[build]'"
        ) from None
    return Path(str(installed.locate_file("ziglang/zig")))


def _run(command: list[str], cwd: Path) -> str:
    """Run a command and return its stderr; if it fails, raise CompileError with it."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        raise CompileError(f"\n{done.stderr or done.stdout}".rstrip())
    return done.stderr
