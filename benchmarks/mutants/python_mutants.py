"""Mutation run over amdattn/: what the tests that run a line notice when the line is changed.

    python -m pip install cosmic-ray coverage
    python benchmarks/mutants/python_mutants.py --number 200 [--seed 15] [--json out.json]

Mutants are cosmic-ray's, one at each of a seeded sample of places, in a copy of the repository.
Each meets the tests that run its line, found by coverage contexts, the short ones first, until one
fails. Annotations, decorators and comparisons by identity have no mutants: most change no result.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import json
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
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
FOLDERS = ("api", "bench", "check", "examples", "hsaco", "plan", "timing")
# Evidence of this project's own, tested by what it finds; what needs checkouts of other projects.
NOT_SOURCES = (
    "amdattn/checking/mutation/",
    *(f"amdattn/bench/{name}" for name in ("aiter", "moonmath", "triton", "sampling", "plots")),
)
# Variables by others of the scope and identity by equality change no result or all of them.
LEFT_OUT = ("Variable", "_Is", "_IsNot", "ComparisonOperator_Is", "RemoveDecorator", "NoOp")
# Sources that tests run as processes of their own, which coverage does not see.
AS_PROCESSES = ("amdattn/cli/",)
TESTS_OF_PROCESSES = ("tests/api/test_cli.py", "tests/check/test_surface_cli.py")
MOST_SECONDS = 60.0  # of the tests of one mutant
# Tests of wall-clock time, which fail on a busy machine whatever the code is.
OF_THE_CLOCK = ("test_choice_time.py", "test_planning_takes_a_moment", "test_import_is_light")


Way = tuple[str, int]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a mutant can be, and the ways to make one: operator and occurrence."""

    path: str
    line: int
    ways: tuple[Way, ...]


def annotations(tree: ast.Module) -> set[tuple[int, int]]:
    """(line, column) of what only type checkers read, and of `strict` and `slots`, which hold."""
    found: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node.returns)
        elif isinstance(node, (ast.arg, ast.AnnAssign)):
            found.append(node.annotation)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.append(node)
        elif isinstance(node, ast.keyword) and node.arg in ("strict", "slots"):
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
    silent = annotations(ast.parse(text))
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


def coverage(tree: Path) -> dict[str, Any]:
    """Tests by file and line, and the seconds that each takes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "contexts.json"
        (tree / "tests" / "contexts.py").write_text((HERE / "contexts.py").read_text())
        text = (tree / "tests" / "contexts.py").read_text()
        (tree / "tests" / "contexts.py").write_text(text.replace("parents[2]", "parents[1]"))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "contexts", "-p", "no:randomly"]
        command += [f"tests/{name}" for name in FOLDERS]
        env = environment(tree, AMDATTN_CONTEXTS=str(out))
        subprocess.run(command, cwd=tree, env=env, check=False)  # a test that fails covers too
        return dict(json.loads(out.read_text()))


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
        tests = {test for body in signed or bodies for test in of(body)}
    if not tests and place.path.startswith(AS_PROCESSES):
        tests = {test for test in found["seconds"] if test.startswith(TESTS_OF_PROCESSES)}
    seconds: dict[str, float] = found["seconds"]
    taken, total = [], 0.0
    for test in sorted(tests, key=lambda name: (seconds[name], name)):
        if any(name in test for name in OF_THE_CLOCK):
            continue
        total += seconds[test]
        if total <= MOST_SECONDS:
            taken.append(test)
    return taken


def changed(text: str, way: Way) -> str | None:
    """The file's text with a mutant, None if it is no other program."""
    name, occurrence = way
    made: str | None = mutate_code(text, get_operator(name)(), occurrence)
    return None if made is None or made == text else made


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
    way: Way,
    found: dict[str, Any],
    known: dict[tuple[str, int, str], Mutant],
) -> Mutant:
    """Make a mutant, run its tests, take it back."""
    file = tree / place.path
    text = file.read_text()
    made = changed(text, way)
    if made is None:
        return Mutant(place.path, place.line, way[0], "not built")
    mutant = Mutant(place.path, place.line, difference(text, made))
    if again := known.get((mutant.path, mutant.line, mutant.change)):
        return again
    tests = covering(place, text, found)
    if not tests:
        return dataclasses.replace(mutant, outcome="not covered")
    watch = Stopwatch()
    before = write(file, made)
    try:
        by = first_failure(tree, tests, 15 * MOST_SECONDS)
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
    chance = random.Random(arguments.seed)
    sample = chance.sample(everywhere, min(arguments.number, len(everywhere)))
    ways = [chance.choice(place.ways) for place in sample]
    mutants, known = [], {}
    if arguments.json and arguments.json.exists():
        rows = [Mutant(**row) for row in json.loads(arguments.json.read_text())]
        known = {(m.path, m.line, m.change): m for m in rows if m.outcome == "caught"}
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_repository(Path(folder))
        if arguments.contexts and arguments.contexts.exists():
            found = json.loads(arguments.contexts.read_text())
        else:
            found = coverage(tree)
            if arguments.contexts:
                arguments.contexts.write_text(json.dumps(found))
        for place, way in zip(sample, ways, strict=True):
            mutants.append(trial(tree, place, way, found, known))
            last = mutants[-1]
            text = f"{last.outcome} {last.seconds:.0f} s {last.path}:{last.line} {last.change}"
            console.print(text, last.by, highlight=False, markup=False, soft_wrap=True)
            if arguments.json:
                rows = [dataclasses.asdict(mutant) for mutant in mutants]
                arguments.json.write_text(json.dumps(rows, indent=1))
    for outcome in ("caught", "survived", "not covered", "not built"):
        of_it = [mutant for mutant in mutants if mutant.outcome == outcome]
        console.print(f"{outcome}: {len(of_it)} of {len(mutants)}")
        if outcome in ("survived", "not covered"):
            for mutant in of_it:
                console.print(f"  {mutant.path}:{mutant.line}: {mutant.change}", highlight=False)


if __name__ == "__main__":
    main()
