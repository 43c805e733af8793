"""Other programs on the virtual device: the command that starts them, and its environment.

A program that links or loads AMD's HIP runtime runs on the virtual device if that runtime finds the
virtual device under the HSA runtime's name (docs/any-hip-program.md).
"""

from __future__ import annotations

import ctypes.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from amdattn import native_libraries, paths
from amdattn.device import binding, virtual_library
from amdattn.errors import BindingError

LOADER = "ld-linux-x86-64.so.2"
_VERSION = ".7"
LIBRARY = f"libamdhip64.so{_VERSION}"
_OPENED = (LIBRARY, f"libhiprtc.so{_VERSION}")  # some name it without the version
# The folder that `build_scripts.amd_runtime` makes in a checkout.
_BROUGHT = Path(__file__).resolve().parents[2] / "build" / "amd_runtime" / "lib"
_CACHE_VARIABLE, _CACHE = "AMD_COMGR_CACHE_DIR", "cache"  # for kernels that AMD's runtime compiles
_X86_64 = "EM_X86_64"
_MOST_INTERPRETERS = 4
_HOW_TO_BRING = (
    "`python -m build_scripts.amd_runtime` in a checkout of amdattn brings one from Debian into "
    "build/amd_runtime/lib, which amd:FOLDER names"
)


def runtime_folder(request: str) -> Path | None:
    """The folder of AMD's HIP runtime; None: the dynamic linker finds it.

    Parameters
    ----------
    request : str
        "amd", "amd:FOLDER", or "" for the value of $AMDATTN_RUNTIME, or else the runtime of a
        checkout, or else the system's.

    Raises
    ------
    BindingError
        There is no runtime.
    ValueError
        `request` is something else.
    """
    request = request or os.environ.get(binding.RUNTIME_VARIABLE, "")
    if not request:
        request = f"amd:{_BROUGHT}" if (_BROUGHT / LIBRARY).is_file() else "amd"
    if request == "amdattn":
        raise ValueError("runtime 'amdattn' must be amd or amd:FOLDER: programs link AMD's runtime")
    folder = binding.check_runtime(request).partition(":")[2]
    if folder and not (Path(folder) / LIBRARY).is_file():
        raise BindingError(
            f"AMD's HIP runtime is missing: {folder} has no {LIBRARY}; {_HOW_TO_BRING}"
        )
    if not folder and ctypes.util.find_library("amdhip64") is None:
        raise BindingError(
            f"AMD's HIP runtime is missing: the dynamic linker finds no {LIBRARY}; {_HOW_TO_BRING}"
        )
    return Path(folder) if folder else None


def link_libraries(into: Path, folder: Path | None) -> None:
    """Link the virtual device's library and AMD's under the names that programs look for.

    Parameters
    ----------
    into : Path
        An empty folder for links.
    folder : Path or None
        What `runtime_folder` gave.
    """
    device = Path(virtual_library.library_path())
    stub = paths.native_library_dir() / native_libraries.HSA_NAME
    if not stub.is_file():
        raise BindingError(f"{stub} is missing: it comes with the virtual device's library")
    (into / native_libraries.HSA_NAME).symlink_to(stub)
    (into / native_libraries.SONAME).symlink_to(device)
    for name in _OPENED:
        if (
            folder
            and (folder / name).exists()
            and not (folder / name.removesuffix(_VERSION)).exists()
        ):
            (into / name.removesuffix(_VERSION)).symlink_to(folder / name)


def command(
    words: Sequence[str], links: Path, folder: Path | None
) -> tuple[list[str], dict[str, str]]:
    """The command that starts a program, and the variables that it needs.

    Parameters
    ----------
    words : sequence of str
        The program, as in a shell, and its arguments.
    links : Path
        What `link_libraries` made.
    folder : Path or None
        What `runtime_folder` gave.

    Raises
    ------
    ValueError
        The program does not exist, or cannot run on the virtual device.
    """
    words = _without_scripts(words)
    _check_executable(Path(words[0]))
    search = [str(links), *([str(folder)] if folder else [])]
    search += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    # They come first, so that neither the program's search paths nor the order of its libraries
    # puts another runtime in their place.
    first = [str(folder / LIBRARY) if folder else LIBRARY, str(links / native_libraries.HSA_NAME)]
    loader = folder / LOADER if folder else None
    if loader is None or not loader.is_file():
        already = filter(None, [os.environ.get("LD_PRELOAD")])
        return words, {
            "LD_LIBRARY_PATH": ":".join(search),
            "LD_PRELOAD": ":".join([*first, *already]),
        }
    # The runtime came with a C library, which may be newer than the system's. The program runs with
    # that one; processes that it starts do not.
    start = [str(loader), "--library-path", ":".join(search), "--preload", ":".join(first)]
    variables = {}
    if _CACHE_VARIABLE not in os.environ and os.access(loader.parents[1], os.W_OK):
        variables[_CACHE_VARIABLE] = str(loader.parents[1] / _CACHE)
    return [*start, "--argv0", words[0], *words], variables


def _without_scripts(words: Sequence[str]) -> list[str]:
    """Put the interpreter in front if the program is a script."""
    for _ in range(_MOST_INTERPRETERS):
        program = _found(words[0])
        with open(program, "rb") as file:
            line = file.readline(1024)
        if not line.startswith(b"#!"):
            return [program, *words[1:]]
        interpreter = os.fsdecode(line[2:]).split(maxsplit=1)
        if not interpreter:
            break
        if os.path.basename(interpreter[0]) == "env" and len(interpreter) == 2:
            interpreter = interpreter[1].split()
        words = [*(word.strip() for word in interpreter), program, *words[1:]]
    raise ValueError(f"program {words[0]!r} has no interpreter that is a program")


def _found(name: str) -> str:
    if os.sep in name:
        if not os.path.exists(name):
            raise ValueError(f"program {name!r} does not exist")
        if not os.path.isfile(name) or not os.access(name, os.X_OK):
            raise ValueError(f"program {name!r} is no file that may be executed")
        return name
    found = shutil.which(name)
    if found is None:
        raise ValueError(f"program {name!r} is in no folder of PATH")
    return found


def _check_executable(program: Path) -> None:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    with open(program, "rb") as file:
        try:
            elf = ELFFile(file)
            machine = elf["e_machine"]
            is_dynamic = any(segment["p_type"] == "PT_INTERP" for segment in elf.iter_segments())
        except ELFError:
            raise ValueError(f"program '{program}' is neither an executable nor a script") from None
    if machine != _X86_64:
        raise ValueError(f"program '{program}' is of architecture {machine}, not {_X86_64}")
    if not is_dynamic:
        raise ValueError(
            f"program '{program}' is linked statically: no library can be put under it"
        )
