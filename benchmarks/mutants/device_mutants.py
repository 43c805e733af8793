"""Mutation run over the virtual device's C++: one textual change, the tests that run its line.

    python benchmarks/mutants/device_mutants.py --number 200 [--seed 15] [--json out.json]
    python benchmarks/mutants/device_mutants.py --again out.json --seconds 200

Mutants are made in a copy of the repository, at a seeded sample of places in .cc files and headers.
First the tests run once, with a library that tells which of its blocks each runs. Then each mutant
meets the tests that run its block or its function, sharp and short ones first, until one fails. A
change that does not compile is no mutant: another place is taken for it. One that compiles to the
same code is told apart. A folder of `--work` keeps the sources and tests that it was made with:
after a change of either, name another. Needs llvm-symbolizer.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from device_build import QuickBuild
from device_reach import MOST_OF_A_TEST, Reach, add_frames
from rich.console import Console
from trials import (
    ROOT,
    Mutant,
    Stopwatch,
    copy_of_repository,
    environment,
    first_failure,
    write,
)

LEVEL = "v3"
MOST_SECONDS = 12.0  # of the tests of one mutant, as they took when they were recorded
PATIENCE = 4  # what takes so many times as long is slow because of the mutant, or hangs
FOLDERS = ("virtual_device", "arrays", "device", "op", "ops", "cli", "docs")
# Where the sharp tests of sources whose path begins so are; the longest beginning counts.
_SEMANTICS = "tests/virtual_device/isa"
LIKELY: dict[str, tuple[str, ...]] = {
    "check/": ("tests/virtual_device/check",),
    "core/": ("tests/virtual_device/core",),
    "hip/": ("tests/virtual_device/hip",),
    "isa/": ("tests/virtual_device/isa",),
    "isa/ds": (f"{_SEMANTICS}/test_ds",),
    "isa/flat": (f"{_SEMANTICS}/test_flat",),
    "isa/mfma": ("tests/virtual_device/numerics/test_mfma.py",),
    "isa/mubuf": (f"{_SEMANTICS}/test_mubuf",),
    "isa/vop": (f"{_SEMANTICS}/test_vop",),
    "isa/register_use": (f"{_SEMANTICS}/test_register_use.py",),
    "isa/footprint": (f"{_SEMANTICS}/test_footprint.py",),
    "numerics/": ("tests/virtual_device/numerics",),
    "timing/": ("tests/virtual_device/timing",),
}
# The generator of a list that tests are made from, and a generated list of refusals.
LEFT_OUT = ("tools/", "hip/unsupported.cc")

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
    """A change of one line of a file, named from `virtual_device` on."""

    name: str
    line: int
    before: str
    after: str

    @property
    def key(self) -> tuple[str, int, str]:
        """Path from the root of the repository, line, and what became what."""
        text = f"{self.before.strip()} -> {self.after.strip()}"
        return f"virtual_device/{self.name}", self.line, text


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


def places(source: Path) -> list[Place]:
    """Every place, file by file."""
    found = []
    for path in sorted([*source.rglob("*.cc"), *source.rglob("*.h")]):
        name = path.relative_to(source).as_posix()
        if name.startswith(LEFT_OUT):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found += [Place(name, number, line, after) for after in changes(line)]
    return found


@dataclasses.dataclass
class Bench:
    """Where mutants are made and met.

    Attributes
    ----------
    folder : Path
        Of everything.
    built : QuickBuild
        Of the unchanged sources.
    reach : Reach
        Of the tests.
    seconds : float
        Most seconds of the tests of one mutant.
    """

    folder: Path
    built: QuickBuild
    reach: Reach
    seconds: float

    def trial(self, place: Place) -> Mutant:
        """Make a mutant, build it, run its tests, take it back."""
        mutant = Mutant(*place.key)
        watch = Stopwatch()
        file = self.built.sources / place.name
        before = file.read_text()
        lines = before.split("\n")
        lines[place.line - 1] = place.after
        try:
            write(file, "\n".join(lines))
            outcome, by = self._met(place)
            if outcome == "survived" and self.built.same_code(place.name, ROOT / "virtual_device"):
                outcome = "same code"
        finally:
            write(file, before)
        return dataclasses.replace(mutant, outcome=outcome, by=by, seconds=watch.seconds())

    def _met(self, place: Place) -> tuple[str, str]:
        """Outcome, and the test that failed."""
        library = library_in(self.folder / "lib")
        if not self.built.library(library, place.name):
            return "not built", ""
        likely = LIKELY[max((key for key in LIKELY if place.name.startswith(key)), key=len)]
        tests = self.reach.tests(place.name, place.line, likely, self.seconds)
        chosen = self.folder / "chosen.json"
        chosen.write_text(json.dumps(tests))
        extra = {"AMDATTN_VDEV_LIBRARY": str(library), "AMDATTN_CHOSEN": str(chosen)}
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        seconds = PATIENCE * self.seconds
        every = math.ceil(MOST_OF_A_TEST * seconds)
        by = first_failure(self.built.tree, ["-p", "reach", *files], seconds, extra, every)
        return ("caught" if by else "survived"), by


def library_in(folder: Path) -> Path:
    """Path of a library in this folder."""
    folder.mkdir(exist_ok=True)
    return folder / f"libamdattn_vdev_x86_64_{LEVEL}.so"


def record(built: QuickBuild, folder: Path, out: Path) -> None:
    """Run the tests and write which blocks each of them runs."""
    library = library_in(folder / "unchanged")
    if not built.library(library):
        raise SystemExit("the unchanged virtual device does not build")
    here = f"{built.tree}/benchmarks/mutants"
    env = environment(built.tree, AMDATTN_REACH=str(out), AMDATTN_VDEV_LIBRARY=str(library))
    env["PYTHONPATH"] += f":{here}"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:randomly", "-p", "reach"]
    command += [f"tests/{name}" for name in FOLDERS]
    subprocess.run(command, cwd=built.tree, env=env, check=False)  # what fails is not recorded
    add_frames(out, library, built.sources)


def chosen_places(everywhere: list[Place], seed: int, again: Path | None) -> list[Place]:
    """A sample's order, or those that an earlier run says were not caught."""
    if again is None:
        random.Random(seed).shuffle(everywhere)
        return everywhere
    left = {
        (row["path"], row["line"], row["change"])
        for row in json.loads(again.read_text())
        if row["outcome"] == "survived"
    }
    return [place for place in everywhere if place.key in left]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="of a mutant's tests")
    parser.add_argument("--work", type=Path, help="keep sources and objects here")
    told = "write the outcomes here; those that it has already are kept"
    parser.add_argument("--json", type=Path, help=told)
    parser.add_argument("--again", type=Path, help="outcomes: only what they say was not caught")
    arguments = parser.parse_args()
    console = Console()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # a mutant is taken back
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.work or Path(temporary)).resolve()
        tree = folder / "amdattn"
        if not tree.exists():
            tree = copy_of_repository(folder)
        built = QuickBuild(tree, folder / "objects", LEVEL)
        recorded = folder / "reach.npz"
        if not recorded.exists():
            record(built, folder, recorded)
        bench = Bench(folder, built, Reach(recorded), arguments.seconds)
        sample = chosen_places(places(built.sources), arguments.seed, arguments.again)
        mutants: list[Mutant] = []
        known: dict[tuple[str, int, str], Mutant] = {}
        if arguments.json and arguments.json.exists():
            rows = [Mutant(**row) for row in json.loads(arguments.json.read_text())]
            known = {(row.path, row.line, row.change): row for row in rows}
        for place in sample:
            if sum(mutant.outcome != "not built" for mutant in mutants) == arguments.number:
                break
            last = known.get(place.key) or bench.trial(place)
            mutants.append(last)
            text = f"{last.outcome} {last.seconds:.0f} s {last.path}:{last.line} {last.change}"
            console.print(text, last.by, highlight=False, markup=False, soft_wrap=True)
            if arguments.json:
                rows = [dataclasses.asdict(mutant) for mutant in mutants]
                arguments.json.write_text(json.dumps(rows, indent=1))
    for outcome, number in Counter(mutant.outcome for mutant in mutants).items():
        console.print(f"{outcome}: {number}")


if __name__ == "__main__":
    main()
