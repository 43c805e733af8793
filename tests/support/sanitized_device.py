"""The virtual device's library with a sanitizer in its faces, memory and loader.

The others' objects, the interpreter's among them, are those of the last build
(`python -m build_scripts.virtual_device`). Runtimes of AddressSanitizer and ThreadSanitizer are
gcc's, loaded before everything else; undefined behaviour traps. `python -m
tests.support.sanitized_device thread FOLDER` prints what has to be in the environment.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from amdattn.native_libraries import HSA_NAME
from build_scripts.virtual_device import (
    BASELINE,
    COLD_FLAGS,
    ROOT,
    SOURCES,
    cold_units,
    compile_one,
    compiler,
    is_hot,
    link_hsa_name,
)

FLAGS = {
    "address": ("-Xclang", "-fsanitize=address"),
    "thread": ("-Xclang", "-fsanitize=thread"),
    "undefined": ("-fsanitize=undefined", "-fsanitize-trap=undefined"),
}
RUNTIMES = {"address": "libasan.so.8", "thread": "libtsan.so.2"}
# Counts of shared pointers are in a part of libc++ that is not instrumented.
_SUPPRESSED = Path(__file__).with_name("tsan_suppressions.txt")
# Leaks: the process's state outlives it on purpose. Containers are of code without sanitizers, too.
OPTIONS = {
    "address": {"ASAN_OPTIONS": "detect_leaks=0:detect_container_overflow=0:handle_segv=0"},
    "thread": {
        "TSAN_OPTIONS": "exitcode=66:report_signal_unsafe=0:suppressions=" + str(_SUPPRESSED)
    },
}
INSTRUMENTED = ("core", "hip", "host", "hsa")  # folders
_LIBRARY = "libamdattn_vdev_sanitized.so"


def build(kind: str, work_dir: Path, level: str, objects: Path) -> Path:
    """The library; `objects` is the folder of the last build."""
    sources = sorted(SOURCES.rglob("*.cc"))
    built = [
        objects / level / s.relative_to(SOURCES).with_suffix(".o") for s in filter(is_hot, sources)
    ]
    flags = (*COLD_FLAGS, "-g1", "-fno-omit-frame-pointer", *FLAGS[kind])
    cold = []
    for unit in cold_units(sources, work_dir):
        if unit.stem.removesuffix("_cold") in INSTRUMENTED:
            obj = work_dir / f"{unit.stem}.o"
            cold.append(compile_one(compiler(BASELINE), unit, obj, flags))
        else:
            built.append(objects / BASELINE / f"{unit.stem}.o")
    if missing := [path for path in built if not path.is_file()]:
        raise FileNotFoundError(f"{missing[0]}: build the virtual device's level {level} first")
    more = Path(__file__).with_name("sanitizer_runtime.cc")
    obj = work_dir / "sanitizer_runtime.o"
    cold.append(compile_one(compiler(BASELINE), more, obj, ("-fno-builtin",)))
    library = work_dir / _LIBRARY
    exports = SOURCES / "hip" / "exports.map"
    link = ["-shared", "-Wl,--gc-sections", "-Wl,-soname,libamdattn_vdev.so", "-Wl,-z,undefs"]
    link += [f"-Wl,--version-script={exports}", "-lpthread", "-o", str(library)]
    subprocess.run([*compiler(BASELINE), *map(str, (*built, *cold)), *link], check=True)
    link_hsa_name(library, work_dir / HSA_NAME, work_dir)
    return library


def environment(kind: str, library: Path) -> dict[str, str]:
    """What has a Python process use the library under its sanitizer."""
    variables = {"AMDATTN_VDEV_LIBRARY": str(library), **OPTIONS.get(kind, {})}
    if kind in RUNTIMES:
        found = subprocess.run(
            ["gcc", f"-print-file-name={RUNTIMES[kind]}"],
            check=True,
            capture_output=True,
            text=True,
        )
        variables["LD_PRELOAD"] = found.stdout.strip()
    return variables


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=FLAGS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--level", default="v3")
    parser.add_argument("--objects", type=Path, default=ROOT / "build" / "virtual_device")
    arguments = parser.parse_args()
    library = build(arguments.kind, arguments.folder, arguments.level, arguments.objects)
    for name, value in environment(arguments.kind, library).items():
        print(f"{name}={value}")


if __name__ == "__main__":
    main()
