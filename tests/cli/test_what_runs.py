"""What commands run when sizes are not told: the cases listed in what_runs.txt, no other ones.

A size that shrinks tests less, and a figure of a page is of other work, without any error.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest

from amdattn.arch.props import KNOWN_DEVICES
from amdattn.bench import shapes
from amdattn.bench.micro_rows import Region
from amdattn.checking import subjects
from amdattn.checking.index_subject import OfIndices
from amdattn.cli import bench_gemm
from amdattn.device import runtime
from amdattn.report import kernels, timings
from amdattn.testing import selftest
from benchmarks import sampling_accuracy as accuracy

LISTED = Path(__file__).with_name("what_runs.txt")


_OF_KERNELS = re.compile(
    r" with \w+| (?:round_mode=|softcap=|d\d)\S+| b?float16(?= )| (?:b_dtype=)?float8_\w+"
)


def of_check() -> Iterable[str]:
    """`amdattn check all`: the cases of one kernel of each kind, which names do not tell apart."""
    for subject in (*subjects.every_case(0), OfIndices()):
        yield _OF_KERNELS.sub("", subject.title)


def of_self_test() -> Iterable[str]:
    return (f"{operation.name} {case.title}" for operation, case in selftest.cases())


def of_report() -> Iterable[str]:
    """`amdattn selftest --report`: against float64, and the larger ones of a GPU."""
    for name, _, cases in kernels.groups(quick=False):
        yield from (_OF_KERNELS.sub("", f"{name} {case}") for case in cases)
    with pytest.MonkeyPatch.context() as patch:
        choice = SimpleNamespace(kind="virtual")
        bound = SimpleNamespace(choice=choice, props=KNOWN_DEVICES["MI300X"])
        patch.setattr(runtime, "get", lambda: bound)
        yield from (f"larger, virtual: {case}" for case in kernels.larger_cases())
        bound.choice.kind = "gpu"
        yield from (f"larger: {case}" for case in kernels.larger_cases())


def of_timings() -> Iterable[str]:
    yield from map(timings.name_of, timings.SHAPES)
    yield from (f"{step.name}, {step.limit_s} s" for step in timings.measured_steps(quick=True))
    yield from (f"{step.name}, {step.limit_s} s" for step in timings.modelled_steps(quick=True))


def of_presets() -> Iterable[str]:
    for name in shapes.PRESETS:
        yield from (f"{name}: {shape}" for shape in shapes.preset(name))


def of_micro() -> Iterable[str]:
    """With what a row is judged by; its text is the shipped object's, see test_micro.py."""
    for _, _, rows, _ in timings._GROUPS:
        for row in rows:
            texts = ("name", "what", "settles", "text", "before", "readings")
            loops = f" {row.passes!r} passes" if isinstance(row, Region) else ""
            others = (field.name for field in dataclasses.fields(row) if field.name not in texts)
            facts = " ".join(f"{name}={getattr(row, name)}" for name in others)
            told = "; ".join((*map(str, row.readings), row.settles))
            yield f"{row.name}, {row.what}, {facts}{loops}: {told}"


def of_bench_gemm() -> Iterable[str]:
    """Without --m, --n and --k."""
    yield f"{bench_gemm._M}x{bench_gemm._N}x{bench_gemm._K}"


def of_accuracy() -> Iterable[str]:
    return map(str, (*accuracy.PLAIN, *accuracy.CAUSAL))


RUN: dict[str, Callable[[], Iterable[str]]] = {
    "amdattn check all": of_check,
    "amdattn selftest": of_self_test,
    "amdattn selftest --report": of_report,
    "times of a report": of_timings,
    "presets of amdattn bench": of_presets,
    "amdattn bench micro": of_micro,
    "accuracy of samples": of_accuracy,
    "amdattn bench gemm": of_bench_gemm,
}


def listed() -> dict[str, list[str]]:
    """Lines by section."""
    found: dict[str, list[str]] = {}
    for line in LISTED.read_text().splitlines():
        if line.startswith("# "):
            lines = found.setdefault(line[2:], [])
        elif line:
            lines.append(line)
    return found


@pytest.mark.parametrize("section", RUN)
def test_cases_are_those_that_are_listed(section: str) -> None:
    assert list(dict.fromkeys(RUN[section]())) == listed()[section]


def test_nothing_else_is_listed() -> None:
    assert list(listed()) == list(RUN)


def test_seeds_reach_every_case() -> None:
    assert {subject.seed for subject in subjects.every_case(7)} == {7}


def main() -> None:
    """Write the list anew."""
    sections = ("\n".join((f"# {name}\n", *dict.fromkeys(cases()))) for name, cases in RUN.items())
    LISTED.write_text("\n\n".join(sections) + "\n")
    print(LISTED)


if __name__ == "__main__":
    main()
