"""Mutation run over the virtual device's C++: one textual change, an incremental build, the tests.

    python benchmarks/mutants/device_mutants.py --number 40 [--seed 15] [--json out.json]

Mutants are made in a copy of the repository, at a seeded sample of places in the .cc files, and of
headers that few of them include. Each meets the tests of its part of the device (TESTS) until one
fails. A change that does not compile is no mutant; another place is taken for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from trials import (
    Mutant,
    Stopwatch,
    copy_of_repository,
    environment,
    first_failure,
    write,
)

LEVEL = "v3"
MOST_SECONDS = 900.0  # of the tests of one mutant
MOST_INCLUDERS = 4  # of a header: more would be compiled anew for every mutant of it
# Tests of sources whose path begins so; the longest beginning counts. Cheap ones first.
_SEMANTICS = "tests/isa_semantics"
TESTS: dict[str, tuple[str, ...]] = {
    "check/": ("tests/check",),
    "core/": ("tests/virtual_device", "tests/execution", "tests/hip", "tests/check", "tests/fuzz"),
    "hip/": ("tests/hip", "tests/execution", "tests/api", "tests/virtual_device"),
    "isa/": ("tests/isa", _SEMANTICS),
    "isa/ds": (f"{_SEMANTICS}/test_ds.py", f"{_SEMANTICS}/test_ds_atomic.py", _SEMANTICS),
    "isa/flat": (f"{_SEMANTICS}/test_flat.py", f"{_SEMANTICS}/test_flat_atomic.py", _SEMANTICS),
    "isa/mfma": ("tests/numerics/test_mfma.py", _SEMANTICS),
    "isa/mubuf": (f"{_SEMANTICS}/test_mubuf.py", f"{_SEMANTICS}/test_mubuf_format.py", _SEMANTICS),
    "isa/vop": (_SEMANTICS, "tests/numerics"),
    "isa/register_use": (f"{_SEMANTICS}/test_register_use.py", "tests/check"),
    "isa/footprint": (f"{_SEMANTICS}/test_footprint.py", "tests/check"),
    "numerics/": ("tests/numerics", _SEMANTICS),
    "timing/": ("tests/timing", "tests/bench"),
    "tools/": ("tests/isa",),
}
LEFT_OUT = ("tools/", "hip/unsupported.cc")  # generated, or the generator of a list

# What becomes what. clang-format puts spaces around binary operators and none into templates.
_SWAPS = {
    " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ",
    " && ": " || ", " || ": " && ", " + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ",
    " % ": " / ", " << ": " >> ", " >> ": " << ", " & ": " | ", " | ": " & ", " ^ ": " | ",
    " += ": " -= ", " -= ": " += ", " |= ": " &= ", " &= ": " |= ", "true": "false",
    "false": "true", "continue;": "break;", "break;": "continue;", "std::min": "std::max",
    "std::max": "std::min",
}  # fmt: skip
_SWAP = re.compile("|".join(rf"(?<!\w){re.escape(text)}(?!\w)" if text[0] != " " else
                            re.escape(text) for text in _SWAPS))  # fmt: skip
_NUMBER = re.compile(r"(?<![\w.\"'])(\d+)(?=u?\b(?![.\w]))")
_NOT = re.compile(r"(?<=[(\s])!(?=[\w(])")
_CALL = re.compile(r"^\s+[\w.\->\[\]]+(\(.*\)|(\s[|&+\-]?=\s.*));$")  # a statement of one line
_SILENT = re.compile(r"^\s*(//|#|\*|using |namespace |template|static_assert|inline constexpr)")


@dataclasses.dataclass(frozen=True)
class Place:
    """A change of one line."""

    path: Path
    line: int
    before: str
    after: str


def changes(line: str) -> Iterator[str]:
    """Every other line that is a mutant of this one."""
    code = line.split("//")[0]
    quoted = [match.span() for match in re.finditer(r'"(?:[^"\\]|\\.)*"', code)]

    def loud(at: int) -> bool:
        return at < len(code) and not any(low <= at < high for low, high in quoted)

    if _SILENT.match(line):
        return
    for match in _SWAP.finditer(code):
        if loud(match.start()):
            yield line[: match.start()] + _SWAPS[match.group()] + line[match.end() :]
    for match in _NUMBER.finditer(code):
        if loud(match.start()):
            yield line[: match.start()] + str(int(match.group()) + 1) + line[match.end() :]
    for match in _NOT.finditer(code):
        if loud(match.start()):
            yield line[: match.start()] + line[match.end() :]
    if _CALL.match(code.rstrip()) and not code.lstrip().startswith(("return", "raise")):
        yield re.match(r"\s*", line).group() + ";"  # type: ignore[union-attr]


def includers(work: Path) -> Counter[str]:
    """How many objects are made anew when a file changes."""
    counts: Counter[str] = Counter()
    for depends in work.rglob("*.d"):
        names = depends.read_text().partition(":")[2].replace("\\\n", " ").split()
        counts.update({name.rpartition("virtual_device/")[2] for name in names})
    return counts


def places(source: Path, counts: Counter[str]) -> list[Place]:
    """Every place, file by file."""
    found = []
    for path in sorted([*source.rglob("*.cc"), *source.rglob("*.h")]):
        name = path.relative_to(source).as_posix()
        if name.startswith(LEFT_OUT) or (path.suffix == ".h" and counts[name] > MOST_INCLUDERS):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found += [Place(path, number, line, after) for after in changes(line)]
    return found


def tests_of(name: str) -> tuple[str, ...]:
    """For a source file."""
    return TESTS[max((key for key in TESTS if name.startswith(key)), key=len)]


def build(tree: Path, work: Path, library: Path) -> bool:
    """Compile and link what changed; False if it does not compile."""
    command = [sys.executable, "-m", "build_scripts.virtual_device", "--level", LEVEL]
    command += ["--jobs", "1", "--work", str(work), "--out", str(library.parent)]
    done = subprocess.run(
        command, cwd=tree, env=environment(tree), capture_output=True, text=True, check=False
    )
    return done.returncode == 0


def change(place: Place, text: str) -> None:
    """Have the place's line say this."""
    lines = place.path.read_text().split("\n")
    lines[place.line - 1] = text
    write(place.path, "\n".join(lines))


def trial(place: Place, tree: Path, work: Path, library: Path) -> Mutant:
    """Make a mutant, build it, run its tests, take it back."""
    name = place.path.relative_to(tree / "virtual_device").as_posix()
    text = f"{place.before.strip()} -> {place.after.strip()}"
    mutant = Mutant(f"virtual_device/{name}", place.line, text, "not built")
    watch = Stopwatch()
    change(place, place.after)
    try:
        if build(tree, work, library):
            named = {"AMDATTN_VDEV_LIBRARY": str(library)}
            by = first_failure(tree, tests_of(name), MOST_SECONDS, named)
            outcome = "caught" if by else "survived"
            mutant = dataclasses.replace(mutant, outcome=outcome, by=by, seconds=watch.seconds())
    finally:
        change(place, place.before)
    return mutant


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=40)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--work", type=Path, help="keep tree and objects in this folder")
    parser.add_argument("--json", type=Path, help="write the outcomes here")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.work or Path(temporary)).resolve()
        tree = folder / "amdattn"
        if not tree.exists():
            tree = copy_of_repository(folder)
        work, library = folder / "work", folder / "lib" / f"libamdattn_vdev_x86_64_{LEVEL}.so"
        if not build(tree, work, library):
            raise SystemExit("the unchanged virtual device does not build")
        everywhere = places(tree / "virtual_device", includers(work))
        chance = random.Random(arguments.seed)
        chance.shuffle(everywhere)
        mutants: list[Mutant] = []
        for place in everywhere:
            if sum(mutant.outcome != "not built" for mutant in mutants) == arguments.number:
                break
            mutants.append(trial(place, tree, work, library))
            last = mutants[-1]
            place_text = f"{last.path}:{last.line} {last.change}"
            text = f"{last.outcome} {last.seconds:.0f} s {place_text} {last.by}"
            console.print(text, highlight=False, markup=False, soft_wrap=True)
            if arguments.json:
                rows = [dataclasses.asdict(mutant) for mutant in mutants]
                arguments.json.write_text(json.dumps(rows, indent=1))
    for outcome, number in Counter(mutant.outcome for mutant in mutants).items():
        console.print(f"{outcome}: {number}")


if __name__ == "__main__":
    main()
