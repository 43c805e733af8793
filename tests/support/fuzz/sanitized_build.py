"""Builds the virtual device with AddressSanitizer and libFuzzer's coverage, and the fuzz targets.

The compiler is ziglang's clang, as for the shipped library; the runtimes of libFuzzer and of the
sanitizers come with the atheris wheel.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build_scripts.virtual_device import (
    GLIBC,
    SOURCES,
    cold_units,
    compile_one,
    is_hot,
)

HERE = Path(__file__).resolve().parent
COVERAGE = ("type=3", "inline-8bit-counters", "pc-table", "trace-cmp")
# The undefined behaviour that a hostile image could provoke. Signed overflow is not among the
# checks for the interpreter's sake alone: lanes wrap as the hardware does.
UNDEFINED = "bounds,shift,integer-divide-by-zero,null,object-size,return,unreachable,bool,enum"


def runtime() -> Path:
    """libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer, as atheris ships it."""
    spec = importlib.util.find_spec("atheris")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the fuzz targets need libFuzzer: pip install atheris")
    return Path(spec.origin).resolve().parent.parent / "asan_with_fuzzer.so"


def compiler() -> list[str]:
    """Command prefix of the instrumenting compiler."""
    command = [sys.executable, "-m", "ziglang", "c++", "-target", f"x86_64-linux-gnu.{GLIBC}"]
    command += ["-mcpu=x86_64_v3", "-gline-tables-only", "-fno-omit-frame-pointer"]
    for flag in ("-fsanitize=address", *(f"-fsanitize-coverage-{kind}" for kind in COVERAGE)):
        command += ["-Xclang", flag]
    return [*command, f"-fsanitize={UNDEFINED}", f"-fno-sanitize-recover={UNDEFINED}"]


def build(work_dir: Path, jobs: int = 1) -> Path:
    """The fuzz target: virtual device, harness and libFuzzer in one program.

    Parameters
    ----------
    work_dir : Path
        Folder for objects and the program; objects that are up to date are kept.
    jobs : int
        Compilations at a time.
    """
    sources = sorted(SOURCES.rglob("*.cc"))
    units = [*cold_units(sources, work_dir), *filter(is_hot, sources), *sorted(HERE.glob("*.cc"))]
    command = [*compiler(), f"-I{HERE}"]

    def compile_unit(unit: Path) -> Path:
        name = unit.relative_to(SOURCES) if unit in sources else Path(unit.name)
        return compile_one(command, unit, work_dir / "objects" / name.with_suffix(".o"))

    with ThreadPoolExecutor(jobs) as pool:
        objects = list(pool.map(compile_unit, units))
    return link(objects, work_dir / "fuzz_code_object")


def link(objects: Sequence[Path], program: Path) -> Path:
    """Link against the runtime, which has to be loaded before everything else."""
    library = runtime()
    command = [sys.executable, "-m", "ziglang", "c++", "-target", f"x86_64-linux-gnu.{GLIBC}"]
    command += ["-mcpu=x86_64_v3", str(library), f"-Wl,-rpath,{library.parent}"]
    subprocess.run(
        [*command, *map(str, objects), "-rdynamic", "-lpthread", "-ldl", "-o", str(program)],
        check=True,
    )
    return program


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
