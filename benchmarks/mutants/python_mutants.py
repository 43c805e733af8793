"""Mutation run over amdattn/: what the tests that run a line notice when the line is changed.

    python -m pip install cosmic-ray coverage
    python benchmarks/mutants/python_mutants.py --number 200 [--seed 15] [--json out.json]
        [--contexts coverage.json [--new tests/arrays/test_arrays.py ...]]

Mutants are cosmic-ray's, one at each of a seeded sample of places, in a copy of the repository.
Each meets the tests that run its line, found by coverage contexts, the short ones first, until one
fails. Annotations, decorators and comparisons by identity have no mutants: most change no result.
Nor have keywords that only tell how a text looks (`PRESENTATION`).

Run again with the same --json, it tries what is not caught yet; `--new` are the test files since.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
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

HERE = Path(__file__).resolve().parent
# Folders whose tests run the package; the others test the virtual device itself.
FOLDERS = (
    *("arch", "arrays", "bench", "build_scripts", "checking", "cli", "device", "docs", "examples"),
    *("op", "ops", "report", "testing", "virtual_device/check", "virtual_device/core"),
    *("packaging/test_levels.py", "test_energy.py", "test_scalars.py", "test_user_files.py"),
    "virtual_device/timing/test_events.py",
)
NOT_SOURCES = ("amdattn/bench/plots.py",)  # whose tests need an extra
# Variables by others of the scope and identity by equality change no result or all of them.
LEFT_OUT = ("Variable", "_Is", "_IsNot", "ComparisonOperator_Is", "RemoveDecorator", "NoOp")
TYPED = ("strict", "slots")  # keywords that hold, whatever is told
# Keywords of calls that colour and space a text or a file, and change nothing that it says.
PRESENTATION = (
    *("highlight", "style", "padding", "pad_edge", "expand", "show_lines", "transient"),
    *("bar_width", "ratio", "no_wrap", "indent"),
)
_OF_BINDING = ("tests/device/test_device_binding.py", "tests/device/test_real_gpu.py")
# Tests that run sources in processes of their own, which coverage does not see.
OF_PROCESSES = {
    "amdattn/cli/": ("tests/cli/test_cli", "tests/cli/test_check.py"),
    "amdattn/report/": ("tests/report/test_report.py",),
    "amdattn/device/binding.py": _OF_BINDING,
    "amdattn/device/runtime/": _OF_BINDING,
}
# Tests of what modules say when they are imported: defaults, fields, tables of cases.
TESTS_OF_IMPORTS = (
    *("tests/ops/test_defaults.py", "tests/cli/test_what_runs.py"),
    "tests/cli/test_listed_options.py",
)
MOST_SECONDS = 60.0  # of the tests of one mutant
MOST_TESTS = 300  # of one mutant
FIRST_TESTS = 30  # most mutants are caught by these, without collecting the others
# Tests of wall-clock time, which fail on a busy machine whatever the code is.
OF_THE_CLOCK = ("test_choice_time.py", "test_planning_takes_a_moment", "test_import_is_light")


Way = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a mutant can be, and the ways to make one: operator and occurrence."""

    path: str
    line: int
    ways: tuple[Way, ...]


def silent_places(tree: ast.Module) -> set[tuple[int, int]]:
    """(line, column) of what only type checkers and readers see."""
    found: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node.returns)
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            found.append(node.annotation)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.append(node)
        elif isinstance(node, ast.keyword) and node.arg in (*TYPED, *PRESENTATION):
            found.append(node.value)
    return {
        (line, column)
        for node in found
        if node is not None
        for line in range(node.lineno, node.end_lineno + 1)
        for column in range(
            node.col_offset if line == node.lineno else 0,
            node.end_col_offset if line == node.end_lineno else 200,
        )
    }


def places(path: str, text: str) -> Iterator[Place]:
    """Every place of a file."""
    nodes = list(ast_nodes(get_ast(text)))
    silent = silent_places(ast.parse(text))
    by_position: dict[tuple[int, int], list[Way]] = defaultdict(list)
    for name in operator_names():
        if any(part in name for part in LEFT_OUT):
            continue
        operator = get_operator(name)()
        found = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(found):
            if start not in silent:
                by_position[start].append((name, occurrence))
    for (line, _), ways in sorted(by_position.items()):
        yield Place(path, line, tuple(ways))


def coverage(tree: Path, tests: Iterable[str]) -> dict[str, Any]:
    """Tests by file and line, the seconds that each takes, and those that fail."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "contexts.json"
        text = (HERE / "contexts.py").read_text()
        (tree / "tests" / "contexts.py").write_text(text.replace("parents[2]", "parents[1]"))
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "tests.contexts"]
        command += ["-p", "no:randomly", *tests]
        env = environment(tree, AMDATTN_CONTEXTS=str(out))
        subprocess.run(command, cwd=tree, env=env, check=False)  # a test that fails covers too
        return dict(json.loads(out.read_text()))


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Both coverages; of a test in both, both."""
    for path, lines in new["lines"].items():
        of_path = old["lines"].setdefault(path, {})
        for line, tests in lines.items():
            of_path[line] = sorted({*of_path.get(line, ()), *tests})
    old["seconds"] |= new["seconds"]
    old["failed"] = sorted({*old["failed"], *new["failed"]})
    return old


def breadths(found: dict[str, Any]) -> dict[str, int]:
    """Lines of the package that each test runs."""
    every = (
        test for of_path in found["lines"].values() for tests in of_path.values() for test in tests
    )
    return Counter(every)


def covering(place: Place, text: str, found: dict[str, Any]) -> list[str]:
    """Tests that run the line; of a signature the function, of what runs on import the file."""
    lines: dict[str, list[str]] = found["lines"].get(place.path, {})

    def of(numbers: Iterable[int]) -> set[str]:
        return {test for n in numbers for test in lines.get(str(n), ())}

    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    bodies = {range(f.body[0].lineno, f.end_lineno + 1): f for f in functions}
    inside = min((body for body in bodies if place.line in body), key=len, default=None)
    if inside is not None:
        statements = [
            range(node.lineno, node.end_lineno + 1)
            for node in ast.walk(bodies[inside])
            if isinstance(node, ast.stmt) and node.lineno <= place.line <= node.end_lineno
        ]
        around = sorted([range(place.line, place.line + 1), *statements, inside], key=len)
        tests = next(filter(None, map(of, around)), set())
    else:  # on import, in whichever test comes first
        signed = [body for body, f in bodies.items() if f.lineno <= place.line < body.start]
        users = of_users(place, tree, found)
        tests = users or {test for body in signed or bodies for test in of(body)}
    for start, files in OF_PROCESSES.items():
        if place.path.startswith(start):
            tests |= {test for test in found["seconds"] if test.startswith(files)}
    first: list[str] = []
    if inside is None or not tests:  # a function may run on import only
        first = [test for test in found["seconds"] if test.startswith(TESTS_OF_IMPORTS)]
    return [*first, *chosen(tests - set(first), found)]


def of_users(place: Place, tree: ast.Module, found: dict[str, Any]) -> set[str]:
    """Of a constant of a module: tests of the lines that name it, and files of tests that do."""
    names = {
        node.id
        for statement in tree.body
        if isinstance(statement, (ast.Assign, ast.AnnAssign))
        and statement.lineno <= place.line <= (statement.end_lineno or 0)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if not names:
        return set()
    naming = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    files = {test.partition("::")[0] for test in found["seconds"]}
    naming_files = tuple(f for f in files if naming.search((ROOT / f).read_text()))
    return {test for test in found["seconds"] if test.startswith(naming_files)} | {
        test
        for path, lines in found["lines"].items()
        for number, text in enumerate((ROOT / path).read_text().splitlines(), 1)
        if naming.search(text)
        for test in lines.get(str(number), ())
    }


def chosen(tests: set[str], found: dict[str, Any]) -> list[str]:
    """One case of every test function, then the second of each, those that run least first."""
    breadth: dict[str, int] = found["breadths"]
    seconds: dict[str, float] = found["seconds"]
    by_function: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda name: (seconds[name], name)):
        if test not in found["failed"] and not any(name in test for name in OF_THE_CLOCK):
            by_function[test.partition("[")[0]].append(test)
    ranked = [
        (rank, breadth[test], test)
        for cases in by_function.values()
        for rank, test in enumerate(cases)
    ]
    taken, total = [], 0.0
    for _, _, test in sorted(ranked):
        if total + seconds[test] <= MOST_SECONDS and len(taken) < MOST_TESTS:
            taken.append(test)
            total += seconds[test]
    return taken


def drawn(places: Sequence[Place], seed: int) -> Iterator[tuple[Place, str]]:
    """Places in random order, each with the text of its file with a mutant there."""
    chance = random.Random(seed)
    for place in chance.sample(places, len(places)):
        name, occurrence = chance.choice(place.ways)
        text = (ROOT / place.path).read_text()
        made: str | None = mutate_code(text, get_operator(name)(), occurrence)
        if made is None or made == text or not is_a_program(made):
            continue
        yield place, made


def is_a_program(text: str) -> bool:
    """Whether it compiles."""
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def difference(before: str, after: str) -> str:
    """The lines that differ, on one line."""
    parts = [
        line[0] + " " + line[1:].strip()
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), n=0)
        if line[0] in "+-" and line[:3] not in ("+++", "---")
    ]
    return " ".join(parts)


def trial(
    tree: Path,
    place: Place,
    made: str,
    found: dict[str, Any],
    known: dict[tuple[str, int, str], Mutant],
) -> Mutant:
    """Make a mutant, run its tests, take it back."""
    file = tree / place.path
    text = file.read_text()
    mutant = Mutant(place.path, place.line, difference(text, made))
    if again := known.get((mutant.path, mutant.line, mutant.change)):
        return again
    tests = covering(place, text, found)
    if not tests:
        return dataclasses.replace(mutant, outcome="not covered")
    watch = Stopwatch()
    before = write(file, made)
    try:
        limit = 60.0 + 4 * sum(found["seconds"][test] for test in tests)
        by = first_failure(tree, tests[:FIRST_TESTS], limit)
        if not by and tests[FIRST_TESTS:]:
            by = first_failure(tree, tests[FIRST_TESTS:], limit)
    finally:
        write(file, text, before)
    outcome = "caught" if by else "survived"
    return dataclasses.replace(mutant, outcome=outcome, by=by, seconds=watch.seconds())


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument(
        "--contexts", type=Path, help="keep the coverage here, or take it from here"
    )
    parser.add_argument("--new", nargs="*", default=[], help="tests that the kept coverage lacks")
    told = "write the outcomes here; of what it has already, mutants that were caught stay so"
    parser.add_argument("--json", type=Path, help=told)
    arguments = parser.parse_args()
    console = Console()
    everywhere = [
        place
        for file in sorted((ROOT / "amdattn").rglob("*.py"))
        if arguments.only in str(file) and not str(file.relative_to(ROOT)).startswith(NOT_SOURCES)
        for place in places(str(file.relative_to(ROOT)), file.read_text())
    ]
    mutants, known = [], {}
    if arguments.json and arguments.json.exists():
        rows = [Mutant(**row) for row in json.loads(arguments.json.read_text())]
        known = {(m.path, m.line, m.change): m for m in rows if m.outcome == "caught"}
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_repository(Path(folder))
        if arguments.contexts and arguments.contexts.exists():
            found = json.loads(arguments.contexts.read_text())
        else:
            found = coverage(tree, [f"tests/{name}" for name in FOLDERS])
        if arguments.new:
            found = merged(found, coverage(tree, arguments.new))
        if arguments.contexts:
            arguments.contexts.write_text(json.dumps(found))
        found["breadths"] = breadths(found)
        for place, made in itertools.islice(drawn(everywhere, arguments.seed), arguments.number):
            last = trial(tree, place, made, found, known)
            mutants.append(last)
            text = f"{last.outcome} {last.seconds:.0f} s {last.path}:{last.line} {last.change}"
            console.print(text, last.by, highlight=False, markup=False, soft_wrap=True)
            if arguments.json:
                later = [known[key] for key in known if known[key] not in mutants]
                rows = [dataclasses.asdict(mutant) for mutant in (*mutants, *later)]
                arguments.json.write_text(json.dumps(rows, indent=1))
        caught_by = sorted({m.by for m in mutants if "::" in m.by and "(" not in m.by})
        if wrong := first_failure(tree, caught_by, 1800):
            console.print(f"fails without a mutant too: {wrong}", markup=False)
    for outcome in ("caught", "survived", "not covered"):
        of_it = [mutant for mutant in mutants if mutant.outcome == outcome]
        console.print(f"{outcome}: {len(of_it)} of {len(mutants)}")
        if outcome in ("survived", "not covered"):
            for mutant in of_it:
                text = f"  {mutant.path}:{mutant.line}: {mutant.change}"
                console.print(text, highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
