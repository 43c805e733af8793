"""Which tests run a line of the virtual device's sources, and in which order to try them."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

MOST_OF_A_TEST = 0.2  # of the seconds of all


class Reach:
    """Tests, what each takes, and the blocks that it runs."""

    def __init__(self, recorded: Path) -> None:
        with np.load(recorded) as data:
            self.names = [str(name) for name in data["names"]]
            self.seconds = data["seconds"]
            self._blocks = data["blocks"]  # bits, a row for each test
            frames = [data["frame_files"].tolist(), *data["frames"].tolist()]
        self._line: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._function: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        for file, block, line, start in zip(*frames, strict=True):
            self._line[file][line].add(block)
            self._function[file][start].add(block)

    def tests(self, file: str, line: int, likely: tuple[str, ...], seconds: float) -> list[str]:
        """Tests of the block, then of the function, then all `likely` ones; short ones first.

        What has no code of its own, such as a constant, is of its last neighbour here: hence the
        likely ones.

        Parameters
        ----------
        file : str
            Below `virtual_device`.
        line : int
        likely : tuple of str
            What the names of sharp tests begin with.
        seconds : float
            How long they may take together.
        """
        of_block = self._reaching(_last(self._line.get(file, {}), line))
        of_function = self._reaching(_last(self._function.get(file, {}), line)) - of_block
        all_likely = {test for test, name in enumerate(self.names) if name.startswith(likely)}
        taken, total = [], 0.0
        for tests in (of_block, of_function, all_likely - of_block - of_function):
            for test in self._in_turn(tests, lambda test: self.names[test].startswith(likely)):
                cost = float(self.seconds[test])
                if cost <= MOST_OF_A_TEST * seconds and total + cost <= seconds:
                    total += cost
                    taken.append(self.names[test])
        return taken

    def _reaching(self, blocks: Iterable[int]) -> set[int]:
        found: set[int] = set()
        for block in blocks:
            rows = self._blocks[:, block // 8] >> (7 - block % 8) & 1
            found.update(np.flatnonzero(rows).tolist())
        return found

    def _in_turn(self, tests: set[int], is_likely: Callable[[int], bool]) -> list[int]:
        """The cheapest case of each test function, then the second ones, and so on."""
        functions: dict[str, list[int]] = defaultdict(list)
        for test in sorted(tests, key=lambda test: self.seconds[test]):
            functions[self.names[test].partition("[")[0]].append(test)
        turns = [
            (turn, not is_likely(test), self.seconds[test], test)
            for cases in functions.values()
            for turn, test in enumerate(cases)
        ]
        return [test for *_, test in sorted(turns)]


def _last(by_line: dict[int, set[int]], line: int) -> set[int]:
    """Of the last entry that does not begin behind the line."""
    return by_line[max(lines)] if (lines := [n for n in by_line if n <= line]) else set()


def add_frames(recorded: Path, library: Path, sources: Path) -> None:
    """Write beside what reach.py recorded where the library's blocks are in the sources."""
    with np.load(recorded) as data:
        arrays = dict(data)
    command = ["llvm-symbolizer", "--output-style=JSON", f"--obj={library}", "--inlines"]
    text = "".join(f"{address:#x}\n" for address in arrays["addresses"])
    said = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    below = f"{sources}/"
    files, frames = [], []
    for block, answer in enumerate(said.stdout.splitlines()):
        for frame in json.loads(answer).get("Symbol", []):  # the inlined calls, the function
            if frame["FileName"].startswith(below):
                files.append(frame["FileName"].removeprefix(below))
                frames.append((block, frame["Line"], frame["StartLine"]))
    arrays["frame_files"] = np.array(files)
    arrays["frames"] = np.array(frames).T
    np.savez_compressed(recorded, **arrays)
