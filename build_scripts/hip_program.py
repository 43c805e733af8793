"""Compile a whole HIP program, host and device code of one source, where there is no hipcc.

`python -m build_scripts.hip_program program.hip -o program` does what hipcc does, with the clang
of the Python package ziglang and with AMD's headers and device libraries, which
`python -m build_scripts.amd_runtime` has brought. Kernels are launched with <<<>>>; the program
links AMD's libamdhip64 and runs by `amdattn exec -- ./program`, and on a GPU with ROCm.
"""

from __future__ import annotations

import argparse
import shlex
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from amdattn.arch.architectures import ARCHITECTURES
from build_scripts import amd_runtime, virtual_device
from build_scripts.toolchain import LLVM22, ToolchainError

_HOST = "x86_64-linux-gnu"
# That of the virtual device's library, for which zig has built its C++ library before.
_TARGET = ("-target", f"{_HOST}.{virtual_device.GLIBC}", f"-mcpu=x86_64_{virtual_device.BASELINE}")
_PAGE = 4096
_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


def compile_program(
    source: Path,
    output: Path,
    archs: Sequence[str] = tuple(ARCHITECTURES),
    flags: Sequence[str] = (),
    runtime: Path = amd_runtime.TARGET,
) -> None:
    """Compile one source to an executable.

    Parameters
    ----------
    source : Path
        As hipcc takes it.
    output : Path
        The program.
    archs : sequence of str
        Which kernels are compiled for.
    flags : sequence of str
        Further options of clang, for host and device code.
    runtime : Path
        What `build_scripts.amd_runtime` made.

    Raises
    ------
    ToolchainError
        The compiler or AMD's headers are missing, or the source is refused.
    """
    sdk, source = runtime / "sdk", source.resolve()
    if not sdk.is_dir():
        raise ToolchainError(
            f"{runtime} has no headers of HIP: `python -m build_scripts.amd_runtime` brings them"
        )
    zig = str(LLVM22.executable())
    common = [
        *(zig, "clang", "-x", "hip", f"--target={_HOST}", "-std=c++20", "-O2"),
        *("-nostdinc", "-nostdinc++", "-nogpuinc"),
        *("-isystem", str(sdk / "clang" / "cuda_wrappers"), *_host_headers(zig)),
        *("-isystem", str(sdk / "include"), "-idirafter", str(sdk / "clang")),
        *("-include", "__clang_hip_runtime_wrapper.h", *flags),
    ]
    with tempfile.TemporaryDirectory(prefix="amdattn-hip-") as name:
        work = Path(name)
        images = {}
        for arch in archs:
            text, unlinked, image = (work / f"{arch}.{end}" for end in ("s", "o", "hsaco"))
            _run(
                [
                    *(*common, "--cuda-device-only", f"--offload-arch={arch}"),
                    *(f"--rocm-device-lib-path={sdk / 'bitcode'}", "-gline-tables-only"),
                    *("-S", str(source), "-o", str(text)),
                ]
            )
            target = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}")
            _run([zig, "clang", *target, "-c", str(text), "-o", str(unlinked)])
            _run([zig, "ld.lld", "-shared", "--no-undefined", str(unlinked), "-o", str(image)])
            images[arch] = image.read_bytes()
        bundle, host = work / "kernels.hipfb", work / "host.o"
        bundle.write_bytes(bundled(images))
        embedded = ("-Xclang", "-fcuda-include-gpubinary", "-Xclang", str(bundle))
        _run([*common, "--cuda-host-only", "-fPIC", *embedded, "-c", str(source), "-o", str(host)])
        library = runtime / "lib" / amd_runtime.LIBRARY
        _run([zig, "c++", *_TARGET, str(host), str(library), "-o", str(output)])


def bundled(images: Mapping[str, bytes]) -> bytes:
    """One offload bundle of code objects by architecture; its first entry, the host's, is empty."""
    entries = [(f"host-{_HOST}-", b"")]
    entries += [(f"hipv4-amdgcn-amd-amdhsa--{arch}", image) for arch, image in images.items()]
    table, body = _MAGIC + struct.pack("<Q", len(entries)), b""
    for target, image in entries:
        body += bytes(-len(body) % _PAGE)
        table += struct.pack("<QQQ", _PAGE + len(body), len(image), len(target)) + target.encode()
        body += image
    return table.ljust(_PAGE, b"\0") + body


def _host_headers(zig: str) -> list[str]:
    """Where zig has the headers of C and C++, and the macros that they are configured by."""
    shown = subprocess.run(
        [zig, "c++", *_TARGET, "-###", "-c", "-x", "c++", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    line = next((line for line in shown.splitlines() if '"-cc1"' in line), "")
    words = shlex.split(line)
    pairs = zip(words, words[1:], strict=False)
    return [word for pair in pairs if pair[0] in ("-isystem", "-D") for word in pair]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"{' '.join(command)}\n{done.stdout}{done.stderr}".rstrip())
    sys.stderr.write(done.stderr)  # warnings


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="default: the source without its suffix")
    parser.add_argument(
        "--arch", action="append", choices=tuple(ARCHITECTURES), help="default: all"
    )
    parser.add_argument("--flag", action="append", default=[], help="of clang, such as --flag=-O3")
    arguments = parser.parse_args()
    output = arguments.output or arguments.source.with_suffix("")
    if output.resolve() == arguments.source.resolve():
        parser.error(f"--output={output} is the source")
    try:
        compile_program(
            arguments.source, output, arguments.arch or tuple(ARCHITECTURES), arguments.flag
        )
    except ToolchainError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
