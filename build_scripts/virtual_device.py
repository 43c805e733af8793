"""Compile the virtual device into shared libraries, one per x86-64 level.

What interprets instructions is compiled once per level, everything else once for all, a folder at a
time; the library that fits the CPU is chosen when it is loaded. An install builds the level of the
CPU that it is made on; `AMDATTN_LEVELS` names others ("all", or a list such as "v2,v3"). The
default compiler is pip's ziglang: no system compiler is needed. `AMDATTN_CXX` names another one
(g++ or clang++ >= 12). Objects are rebuilt when a file that they depend on, or the compiler, has
changed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from amdattn.device.x86_level import LEVELS, library_name, runnable_levels
from amdattn.native_libraries import HSA_NAME

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "virtual_device"
GLIBC = "2.28"  # the oldest one that the libraries run with
BASELINE = LEVELS[0]
HSA_VERSION = "ROCR_1"  # of the symbols of AMD's HSA runtime
# Sources that are worth a build per level: semantics, arithmetic and the interpreter's loop.
HOT = ("numerics/", "isa/", "check/", "core/worker", "core/wave", "core/abi")
COLD = ("isa/decode", "isa/print", "isa/tables", "isa/encoding_test", "isa/semantics_test")

COMMON_FLAGS = (
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-ffunction-sections",  # of which the linker leaves out what nothing refers to
    "-fdata-sections",
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
# Of what is not hot, behind those: fewer bytes for the wheel, which has a library for each level.
COLD_FLAGS = ("-Os",)
# Standard headers that many sources include: parsing them takes longer than the code of most.
# Sources include what they use all the same: the sanitizers' build does without.
PRECOMPILED = (
    *("algorithm", "array", "atomic", "bit", "chrono", "cmath", "condition_variable", "cstdio"),
    *("cstring", "deque", "functional", "map", "memory", "mutex", "optional", "span", "string"),
    *("string_view", "thread", "unordered_map", "utility", "variant", "vector"),
)
PRECOMPILED_TEXT = "precompiled.h"
WORTH_PRECOMPILING = 3  # units of one level; for fewer, reading the headers is quicker


def requested_levels(request: str) -> tuple[str, ...]:
    """What an install builds for a value of AMDATTN_LEVELS, oldest level first.

    Parameters
    ----------
    request : str
        "all", a list such as "v2,v3", or "": the newest level that this CPU runs.

    Raises
    ------
    ValueError
        A level of the list is not one of LEVELS.
    RuntimeError
        Nothing was asked for, and this CPU is older than all of LEVELS.
    """
    if request == "all":
        return LEVELS
    if request:
        chosen = [level.strip() for level in request.split(",")]
        if not set(chosen) <= set(LEVELS):
            raise ValueError(
                f"AMDATTN_LEVELS={request!r} must be 'all' or a list of {', '.join(LEVELS)}"
            )
        return tuple(level for level in LEVELS if level in chosen)
    runnable = runnable_levels()
    if not runnable:
        raise RuntimeError(
            f"this CPU is older than x86-64-{BASELINE}, the oldest level that the virtual device "
            "is built for; AMDATTN_LEVELS=all builds a wheel for other machines"
        )
    return runnable[-1:]


def wheel_platform(request: str, own_compiler: bool) -> str:
    """Platform tag of a wheel with the libraries that `request` (AMDATTN_LEVELS) asks for.

    A manylinux tag promises the glibc that pip's compiler links for and any x86-64 CPU: it takes
    the baseline, asked for by name. Everything else is for machines like this one.
    """
    if request and not own_compiler and BASELINE in requested_levels(request):
        return f"manylinux_{GLIBC.replace('.', '_')}_x86_64"
    return "linux_x86_64"


def own_compiler() -> list[str]:
    """The compiler that AMDATTN_CXX names, with its arguments; empty for pip's."""
    return shlex.split(os.environ.get("AMDATTN_CXX", ""))


def compiler(level: str) -> list[str]:
    """Command prefix that compiles C++ for one x86-64 level."""
    if chosen := own_compiler():
        return [*chosen, f"-march=x86-64-{level}", "-Wno-unknown-pragmas"]
    target = ["-target", f"x86_64-linux-gnu.{GLIBC}", f"-mcpu=x86_64_{level}"]
    return [sys.executable, "-m", "ziglang", "c++", *target]


def compiler_identity(level: str) -> str:
    """What objects of a level depend on besides files: the compiler's version and its flags.

    Not where the compiler is: pip unpacks it into another folder for every build.
    """
    chosen = own_compiler()
    if chosen:
        said = subprocess.run([*chosen, "--version"], check=True, capture_output=True, text=True)
        version = said.stdout.partition("\n")[0]
        flags = compiler(level)
    else:
        version = f"ziglang {importlib.metadata.version('ziglang')}"
        flags = compiler(level)[1:]
    return "\n".join([version, *flags, *COMMON_FLAGS, *COLD_FLAGS])


def is_hot(source: Path) -> bool:
    """Whether a source file is compiled for each level."""
    name = source.relative_to(SOURCES).as_posix()
    return name.startswith(HOT) and not name.startswith(COLD)


def is_own(unit: Path) -> bool:
    """Whether a unit is a source file, not one of `cold_units`."""
    return unit.is_relative_to(SOURCES)


def write_if_changed(path: Path, text: str) -> None:
    """Write a file unless that is what it holds: what depends on it stays up to date."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def cold_units(sources: Sequence[Path], work_dir: Path) -> list[Path]:
    """One translation unit for each folder's other sources: they share the cost of the headers."""
    units = []
    for folder in sorted({source.parent for source in sources}):
        members = [s for s in sources if s.parent == folder and not is_hot(s)]
        if not members:
            continue
        unit = work_dir / f"{folder.name}_cold.cc"
        names = (s.relative_to(SOURCES).as_posix() for s in members)
        write_if_changed(unit, "".join(f'#include "{name}"\n' for name in names))
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
        if path.name == PRECOMPILED_TEXT:  # each build's own; sources do without it
            continue
        if not path.exists() or path.stat().st_mtime > built:
            return True
    return False


def compile_one(command: Sequence[str], source: Path, obj: Path, flags: Sequence[str] = ()) -> Path:
    """Compile one source file, with these flags behind COMMON_FLAGS, unless it is up to date."""
    depfile = obj.with_suffix(".d")
    if is_stale(obj, depfile):
        obj.parent.mkdir(parents=True, exist_ok=True)
        # -MMD: without the headers of the compiler, which is somewhere else in the next build.
        depends = ["-MMD", "-MF", str(depfile)]
        subprocess.run(
            [*command, *COMMON_FLAGS, *flags, *depends, "-c", str(source), "-o", str(obj)],
            check=True,
        )
    return obj


@dataclass(frozen=True)
class LevelFolder:
    """Where the objects of one level are, and how they are compiled."""

    path: Path
    level: str

    @property
    def header(self) -> Path:
        """Includes PRECOMPILED, in front of every unit."""
        return self.path / "standard.h"

    @property
    def compiled_header(self) -> Path:
        """Where g++ and clang look for its compiled form."""
        return self.header.with_suffix(".h.gch")

    @property
    def command(self) -> list[str]:
        """Command prefix for the level's units."""
        return [*compiler(self.level), "-include", str(self.header)]

    def prepare(self) -> None:
        """Drop the objects of another compiler and what a killed build left; write the header."""
        stamp, identity = self.path / "compiler.txt", compiler_identity(self.level)
        if self.path.exists() and (not stamp.exists() or stamp.read_text() != identity):
            shutil.rmtree(self.path)
        self.compiled_header.unlink(missing_ok=True)
        write_if_changed(stamp, identity)
        write_if_changed(self.header, "".join(f"#include <{name}>\n" for name in PRECOMPILED))

    @contextlib.contextmanager
    def precompiled(self, num_units: int) -> Iterator[None]:
        """Keep a compiled form of the header while `num_units` units are compiled.

        No longer: it is valid only as long as the standard headers stay where they are.
        """
        if num_units < WORTH_PRECOMPILING:
            yield
            return
        # A text of this build's own: zig's cache would give the form that another build made, which
        # names the standard headers where pip had unpacked them then.
        source = self.header.with_name(PRECOMPILED_TEXT)
        source.write_text(f"// {time.time_ns()}\n{self.header.read_text()}")
        try:
            command = [*compiler(self.level), *COMMON_FLAGS, "-x", "c++-header"]
            subprocess.run([*command, str(source), "-o", str(self.compiled_header)], check=True)
            yield
        finally:
            self.compiled_header.unlink(missing_ok=True)
            source.unlink()


def build(levels: Sequence[str], out_dir: Path, work_dir: Path, jobs: int) -> list[Path]:
    """Build the libraries of some levels and return their paths.

    Libraries of other levels in `out_dir` are removed: they would be of older sources.
    """
    sources = sorted(SOURCES.rglob("*.cc"))
    units = [*cold_units(sources, work_dir), *filter(is_hot, sources)]  # the long ones first
    folders = {level: LevelFolder(work_dir / level, level) for level in {BASELINE, *levels}}
    for folder in folders.values():
        folder.prepare()
    tasks: dict[Path, tuple[LevelFolder, Path]] = {}
    objects: dict[str, list[Path]] = {level: [] for level in levels}
    for unit in units:
        hot = unit in sources
        name = unit.relative_to(SOURCES) if hot else Path(unit.name)
        for level in levels:
            folder = folders[level if hot else BASELINE]
            obj = folder.path / name.with_suffix(".o")
            tasks[obj] = (folder, unit)
            # Hot objects first: where a linker merges inline functions it keeps the first copy.
            objects[level].insert(0 if hot else len(objects[level]), obj)
    compile_all(tasks, jobs)
    out_dir.mkdir(parents=True, exist_ok=True)
    for level in set(LEVELS) - set(levels):
        (out_dir / library_name(level)).unlink(missing_ok=True)
    libraries = [link(objects[level], out_dir / library_name(level)) for level in levels]
    link_hsa_name(libraries[0], out_dir / HSA_NAME, work_dir)
    return libraries


def compile_all(tasks: dict[Path, tuple[LevelFolder, Path]], jobs: int) -> None:
    """Compile the units whose objects are not up to date, `jobs` at a time, in order."""
    stale = {obj: task for obj, task in tasks.items() if is_stale(obj, obj.with_suffix(".d"))}
    users = [folder for folder, unit in stale.values() if is_own(unit)]
    with contextlib.ExitStack() as headers, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for folder in set(users):
            headers.enter_context(folder.precompiled(users.count(folder)))
        for done in concurrent.futures.as_completed(
            [
                # The compiled header is of other flags than those of what is not hot.
                pool.submit(compile_one, f.command, unit, obj)
                if is_own(unit)
                else pool.submit(compile_one, compiler(f.level), unit, obj, COLD_FLAGS)
                for obj, (f, unit) in stale.items()
            ]
        ):
            done.result()


def link(objects: Sequence[Path], library: Path) -> Path:
    """Link one library unless it is newer than its objects.

    All are linked for the baseline, so that zig builds its libc++ once.
    """
    exports = SOURCES / "hip" / "exports.map"
    inputs = [*objects, exports]
    if library.exists() and all(f.stat().st_mtime <= library.stat().st_mtime for f in inputs):
        return library
    subprocess.run(
        [
            *compiler(BASELINE),
            "-shared",
            "-s",
            "-Wl,--gc-sections",
            "-Wl,-soname,libamdattn_vdev.so",
            f"-Wl,--version-script={exports}",
            *map(str, objects),
            "-lpthread",
            "-o",
            str(library),
        ],
        check=True,
    )
    return library


def link_hsa_name(library: Path, named: Path, work_dir: Path) -> None:
    """Link what has the name of the HSA runtime, and nothing else, and needs one of the libraries.

    Any of them, whatever is in it: they have one name for the dynamic linker. It has AMD's version
    of the interface, without which the linker warns of every program.
    """
    empty, versions = work_dir / "empty.cc", work_dir / "hsa_versions.map"
    write_if_changed(empty, "")
    write_if_changed(versions, f"{HSA_VERSION} {{}};\n")
    if named.exists() and versions.stat().st_mtime <= named.stat().st_mtime:
        return
    subprocess.run(
        [
            *compiler(BASELINE),
            "-shared",
            "-s",
            "-nostdlib",
            f"-Wl,-soname,{named.name}",
            f"-Wl,--version-script={versions}",
            "-Wl,--no-as-needed",
            "-Wl,-rpath,$ORIGIN",
            *(str(empty), str(library)),
            *("-o", str(named)),
        ],
        check=True,
    )


def main() -> None:
    """Command line: `python -m build_scripts.virtual_device [--level v3]`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", choices=LEVELS, action="append", help="default: as an install")
    parser.add_argument("--out", type=Path, default=ROOT / "amdattn" / "_lib")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "virtual_device")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    levels = args.level or requested_levels(os.environ.get("AMDATTN_LEVELS", ""))
    for library in build(levels, args.out, args.work, args.jobs):
        print(library)


if __name__ == "__main__":
    main()
