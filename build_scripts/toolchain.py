"""Pinned compilers and the one way HIP sources become code objects.

The PyPI package ziglang carries a whole clang with the AMDGPU back end, and lld; nothing of ROCm is
needed. Two versions are pinned because neither allocates registers better for every kernel. The
output depends on the sources and the version alone, not on where the checkout lies.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from amdattn.compiler import DEFAULT_ARCH, assembler_flags, device_flags

ASM_SRC = Path(__file__).resolve().parent.parent / "asm_src"

# The schedules of main loops are placed while they compile.
CONSTEXPR_STEPS = "-fconstexpr-steps=100000000"


class ToolchainError(RuntimeError):
    """A compiler could not be had, or refused a source; the message carries its output."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """One pinned compiler: a version of ziglang on PyPI and the LLVM inside it."""

    version: str
    llvm: str

    def __str__(self) -> str:
        return f"ziglang=={self.version} (LLVM {self.llvm})"

    def executable(self) -> Path:
        """The zig binary: of this environment, of the cache, or installed into the cache by pip.

        The cache is $AMDATTN_TOOLCHAIN_DIR, or else amdattn/toolchains in the user's cache.
        """
        try:
            installed = importlib.metadata.distribution("ziglang")
        except importlib.metadata.PackageNotFoundError:
            installed = None
        if installed is not None and installed.version == self.version:
            return Path(str(installed.locate_file("ziglang/zig")))
        target = _cache_dir() / f"ziglang-{self.version}"
        if not (target / "ziglang" / "zig").exists():
            _pip_install(f"ziglang=={self.version}", target)
        return target / "ziglang" / "zig"


LLVM21 = Toolchain("0.16.0", "21.1.0")
LLVM22 = Toolchain("0.17.1", "22.1.8")
TOOLCHAINS = (LLVM21, LLVM22)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one source became.

    Attributes
    ----------
    code_object : bytes
        ELF shared object, as hipModuleLoadData takes it.
    assembly : str
        The compiler's annotated assembly, for people.
    sources : tuple of Path
        The source and every file it includes, transitively; absolute, sorted.
    """

    code_object: bytes
    assembly: str
    sources: tuple[Path, ...]


def compile_hip(
    source: Path,
    toolchain: Toolchain,
    arch: str = DEFAULT_ARCH,
    defines: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
) -> Compiled:
    """Compile one HIP source; `asm_src` is on the include path.

    Parameters
    ----------
    source : Path
        A .hip file.
    toolchain : Toolchain
        Which pinned compiler.
    arch : str
        "gfx942" or "gfx950", without feature suffixes: the object then loads whatever the XNACK and
        SRAM-ECC settings of the GPU are.
    defines : tuple of str
        Macros, "NAME" or "NAME=value".
    flags : tuple of str
        Further options of the compiler.

    Raises
    ------
    ToolchainError
        The compiler is not to be had, or it reports an error or a warning.
    """
    zig = toolchain.executable()
    source = source.resolve()
    with tempfile.TemporaryDirectory(prefix="amdattn-build-") as name:
        work = Path(name)
        assembly, depends = work / "kernel.s", work / "kernel.d"
        # Compiled from the source's own folder by its bare name: no path of the checkout can reach
        # the output. The prefix map covers what __FILE__ in a header would add.
        _run(
            [
                *(str(zig), "clang", *device_flags(arch)),
                *("-ffp-contract=off", "-Wall", "-Wextra", "-Werror"),
                *(f"-ffile-prefix-map={ASM_SRC}=asm_src", f"-I{ASM_SRC}"),
                *(f"-D{define}" for define in defines),
                *flags,
                # -MD: the driver does dependencies for host code only; the compiler proper can.
                *("-Xclang", "-dependency-file", "-Xclang", str(depends)),
                *("-Xclang", "-MT", "-Xclang", "kernel"),
                *("-S", source.name, "-o", str(assembly)),
            ],
            source.parent,
        )
        text = _without_padding(assembly.read_text(encoding="utf-8"))
        return Compiled(
            assemble(text, toolchain, arch),
            text,
            _dependencies(depends.read_text(encoding="utf-8"), source.parent),
        )


def assemble(text: str, toolchain: Toolchain, arch: str) -> bytes:
    """The code object of assembly text.

    Raises
    ------
    ToolchainError
        The compiler is not to be had, or it refuses the text.
    """
    zig = toolchain.executable()
    with tempfile.TemporaryDirectory(prefix="amdattn-build-") as name:
        work = Path(name)
        assembly, obj, linked = (work / f"kernel.{suffix}" for suffix in ("s", "o", "hsaco"))
        assembly.write_text(text, encoding="utf-8")
        _run(
            [
                *(str(zig), "clang", *assembler_flags(arch)),
                *("-c", assembly.name, "-o", obj.name),
            ],
            work,
        )
        _run(
            [
                *(str(zig), "ld.lld", "-shared", "--no-undefined", "--discard-all"),
                *("--build-id=none", obj.name, "-o", linked.name),
            ],
            work,
        )
        return linked.read_bytes()


def _without_padding(assembly: str) -> str:
    """The compiler's annotated assembly without the nops it puts between two inline statements.

    It pads each use of a result of inline assembly because the statement might write part of a
    register; asm_src/isa/ordered.h has no such instruction, and its users keep the distances that
    the hardware wants. Checked mode holds them to it.
    """
    comments = r"(?:[ \t]*;(?!;)[^\n]*\n)*"
    return re.sub(
        rf"(;;#ASMEND\n{comments})[ \t]+s_nop 0\n(?={comments}[ \t]*;;#ASMSTART)",
        r"\1",
        assembly,
    )


def compiler_acc_uses(assembly: str) -> list[str]:
    """Instructions that touch accumulation registers and are none of the source's own.

    A source that takes them by number (asm_src/isa/acc.h) must be the only one to do so.
    """
    own = re.sub(r";;#ASMSTART.*?;;#ASMEND", "", assembly, flags=re.S)
    code = (line.split(";")[0].strip() for line in own.splitlines())
    return [line for line in code if re.search(r"\ba(\d+|\[\d+:\d+\])", line)]


def _dependencies(make_rule: str, folder: Path) -> tuple[Path, ...]:
    """Prerequisites of the one make rule that clang wrote; spaces in names are escaped."""
    names = re.split(r"(?<!\\)\s+", make_rule.split(":", 1)[1].replace("\\\n", " ").strip())
    return tuple(sorted({(folder / name.replace("\\ ", " ")).resolve() for name in names}))


def _cache_dir() -> Path:
    override = os.environ.get("AMDATTN_TOOLCHAIN_DIR")
    if override:
        return Path(override)
    user_cache = os.environ.get("XDG_CACHE_HOME", "")
    try:  # a relative path counts as none, by the XDG base directory specification
        cache = Path(user_cache) if os.path.isabs(user_cache) else Path.home() / ".cache"
    except RuntimeError as error:
        raise ToolchainError(f"{error}: name a folder in AMDATTN_TOOLCHAIN_DIR") from None
    return cache / "amdattn" / "toolchains"


def _pip_install(requirement: str, target: Path) -> None:
    """Install into `target` as a whole or not at all: several builds may run at once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="install-") as name:
        fresh = Path(name) / "site"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        _run([*command, "--target", str(fresh), requirement], target.parent)
        try:
            fresh.rename(target)
        except OSError:
            if not target.is_dir():  # else another build was first
                raise


def _run(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"{' '.join(command)}\n{done.stdout}{done.stderr}".rstrip())
