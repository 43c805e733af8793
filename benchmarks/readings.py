"""A measurement under every reading of the performance model (docs/generated/readings.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import amdattn
from amdattn.arch import readings
from amdattn.arch.readings import DEFAULT
from amdattn.bench import run

# What the tables call two readings, and the default beside them.
LDS = {"measured": DEFAULT, "published": "lds-256"}
TRANS = {"beside": DEFAULT, "exclusive": "trans-exclusive"}

Found = TypeVar("Found")


class OfReading(NamedTuple):
    """A ratio, and the reading under which it is that."""

    ratio: float
    reading: str

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({self.reading})"


def each_reading(measure: Callable[[], Found]) -> dict[str, Found]:
    """What a measurement gives under each reading of the bound device's architecture.

    The default comes first.
    """
    found: dict[str, Found] = {}
    for name in readings.names(amdattn.device_props().arch):
        with run.reading(name):
            found[name] = measure()
    return found


def least_ratio(theirs: Mapping[str, float], ours: Mapping[str, float]) -> OfReading:
    """Of two times by reading: how many times as long theirs takes at least."""
    return min(OfReading(theirs[name] / ours[name], name) for name in ours)
