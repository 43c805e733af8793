"""Many launches, one after the other or by number, and what came of each class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.adversary.bar import Verdict
from tests.support.adversary.classes import CLASSES
from tests.support.adversary.launches import Launch, draw


def made(name: str, number: int, seed: int = 0, family: str = "", kernel: str = "") -> Launch:
    """The launch of a class with this number: always the same one."""
    rng = np.random.default_rng([seed, number, *name.encode()])
    launch = draw(rng, family, kernel)
    CLASSES[name](launch)
    return launch


@dataclass(frozen=True)
class Tried:
    """A launch of a class and what came of its heads."""

    name: str
    launch: Launch
    verdicts: list[Verdict]
    control: list[Verdict]
    label: str


@dataclass
class Row:
    """What came of the cases of a class, each a head of a launch."""

    cases: int = 0
    failures: int = 0
    control: int = 0  # what fails of the plain pipeline with its sums in another order
    worst: float = 0.0
    worst_launch: str = ""
    kinds: dict[str, int] = field(default_factory=dict)  # of failures: what was worst
    kernels: dict[str, int] = field(default_factory=dict)  # of failures

    def add(self, tried: Tried) -> None:
        kernel, label = tried.launch.kernel.name, tried.label
        self.control += sum(not verdict.holds for verdict in tried.control)
        for verdict in tried.verdicts:
            self.cases += 1
            if verdict.worst > self.worst or not self.worst_launch:
                self.worst, self.worst_launch = verdict.worst, label
            if not verdict.holds:
                self.failures += 1
                self.kinds[verdict.kind] = self.kinds.get(verdict.kind, 0) + 1
                self.kernels[kernel] = self.kernels.get(kernel, 0) + 1

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def failures(tried: Iterable[Tried], most: float = 1.0) -> list[str]:
    """Heads of launches that are not within so many times the bar."""
    return [
        f"{one.label} head {head}: {verdict.kind} {verdict.worst:.3g}"
        for one in tried
        for head, verdict in enumerate(one.verdicts)
        if not verdict.worst <= most
    ]


def sweep(
    cases: int, seed: int = 0, names: Iterable[str] = (), family: str = "", kernel: str = ""
) -> Iterator[Tried]:
    """Launches of each class in turn until there are so many cases."""
    classes = list(names) or list(CLASSES)
    done = number = 0
    while done < cases:
        for name in classes:
            launch = made(name, number, seed, family, kernel)
            verdicts, control = launch.run()
            done += len(verdicts)
            yield Tried(name, launch, verdicts, control, f"{name}/{number}/{seed}")
        number += 1
