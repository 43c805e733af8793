"""Every form in which results are told, of made-up ones, character by character: listed_tables.txt.

The figures are such that a wrong unit, factor, column or number of digits shows. Whoever changes a
table sees it here, and lists it with

    python -m tests.bench.test_listed_tables
"""

from __future__ import annotations

import dataclasses
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from amdattn.bench import launch, micro, report
from amdattn.bench.compare import compare
from amdattn.bench.record import MEASURED, MODELLED, Record, Times
from amdattn.cli import compare as comparing
from amdattn.report import document, supervise
from amdattn.report.supervise import Planned

LISTED = Path(__file__).with_name("listed_tables.txt")
CLOCKS = {"peak_ghz": 2.1, "sustained_ghz": 1.2, "launch_us": 2.7}
SHORT = Record(
    "attention",
    "b1 h8 s512 d128",
    {"batch": 1, "seqlen_q": 512, "window_size": [127, -1]},
    "amdattn",
    "rtne",
    MODELLED,
    kernel="attn_fwd",
    sha256="ab" * 32,
    flops=1_073_741_824,
    cycles=123_456.0,
    times=Times(58.789, 102.88, 61.728),
    use={"mfma": 0.4321, "mfma_device": 0.1234, "valu": 0.2515, "lds": 0.0605},
    stalls={"barrier": 0.125, "waitcnt": 0.5, "fetch": 0.01},
    bytes={"l1": 1.5e9, "l2": 7e8, "mall": 3e8, "hbm": 2_123_456_789, "hbm_write": 111_111_111},
    workgroups=304,
    residents=2,
    rounds=3,
    clocks=CLOCKS,
    reading="default",
    caches="code warm, data cold",
    sampled={"lengths": [256, 512], "check_error": -0.00123, "order_range": [-0.004, 0.0234]},
    hottest=[
        {
            "offset": 64,
            "text": "s_waitcnt vmcnt(0)",
            "issued": 99,
            "share": 0.25,
            "reason": "waitcnt",
        },
        {"offset": 1024, "text": "s_barrier", "issued": 7, "share": 0.015, "reason": "barrier"},
    ],
    energy={
        "joules": 0.012345,
        "clock_ghz": 2.0,
        "cycles": 123_456,
        "microseconds": 61.728,
        "watts": {"idle": 200.0, "matrix": 123.45},
        "matrix_flops": {"16x16x16": 1e9},
        "per_matrix_kflop": {"vector_slots": 1.5, "hbm_bytes": 2.25},
    },
)
LONG = dataclasses.replace(
    SHORT,
    shape="b2 h24 s8192 d128",
    flops=3_298_534_883_328,
    cycles=9_876_543.0,
    times=Times(4703.1, 8230.5, 6543.2),
    sampled={},
    launches=[
        {
            "kernel": name,
            "cycles": cycles,
            "times": {"at_sustained_us": cycles / 1200},
            "use": {"mfma": 0.5678, "mfma_device": 0.0456},
        }
        for name, cycles in (("fwd", 9_000_000), ("merge", 876_000), ("last", 543))
    ],
    energy={"refused": "MFMA ['1x2x3'] have no energy"},
)
PEER = dataclasses.replace(
    SHORT, peer="aiter", round_mode="rtz", times=Times(50.0, 200.0, 123.456), sha256="cd" * 32
)
PART = dataclasses.replace(
    LONG,
    peer="object=k.hsaco",
    round_mode="",
    flops=0,
    launches=[],
    sampled={"first_workgroups": 5, "of_workgroups": 38},
    reading="trans-exclusive",
)
REFUSED = Record("attention", LONG.shape, {}, "amdattn", "rtz", MODELLED, refused="is [not] built")
GPU = dataclasses.replace(
    SHORT, origin=MEASURED, times=Times(median_us=77.77, low_us=70.07, high_us=99.9), clocks={}
)
RUNS: dict[str, list[Record]] = {
    "one": [SHORT],
    "peers": [SHORT, PEER, LONG, PART, REFUSED],
    "exclusive": [dataclasses.replace(LONG, reading="trans-exclusive")],
    "gpu": [GPU, dataclasses.replace(GPU, peer="triton", times=Times(median_us=100.0))],
}


def console() -> Console:
    return Console(file=io.StringIO(), width=200, height=40, color_system=None)


def shown(write: Callable[[Console], object]) -> str:
    to = console()
    write(to)
    text: str = to.file.getvalue()  # type: ignore[attr-defined]
    return text


def compared(before: list[Record], after: list[Record]) -> str:
    """What `amdattn bench compare` prints of two files."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        to = console()
        patch.setattr(comparing, "stdout", to)
        files = Path(folder, "before.json"), Path(folder, "after.json")
        given = dict(zip(files, (before, after), strict=True))
        patch.setattr("amdattn.bench.record.read", lambda path: ({}, given[path]))
        comparing.compare(*files)
    found: str = to.file.getvalue()  # type: ignore[attr-defined]
    return found


def of_csv(records: list[Record]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        report.write_csv(Path(folder, "a.csv"), records)
        return Path(folder, "a.csv").read_text()


def of_report(failing: bool) -> str:
    """Of `amdattn selftest --report`, without the date."""
    (row,) = micro.rows("chain_lds_b128")
    device = supervise.Outcome(Planned("device", "the device", 5), supervise.PASSED, seconds=1.25)
    facts = {"name": "MI300X", "kind": "gpu" if not failing else "virtual"}
    device.rows = [
        {"what": name, "outcome": "info", "text": text, "data": {}} for name, text in facts.items()
    ]
    device.rows.append({"what": "absent", "outcome": "absent", "text": "", "data": {}})
    outcomes = [device]
    for figure in (
        micro.Figure(row, "measured", 108.25, low=101.125, high=120.5),
        micro.Figure(row, "modelled", 64.0),
    ):
        status = supervise.FAILED if failing else supervise.PASSED
        outcome = supervise.Outcome(Planned("micro", "micro kernels", 90), status, seconds=12.345)
        shape = {"name": "gemm 1x2x3", "flops": 12, "origin": figure.origin}
        times = {"low_us": 1.0, "median_us": 22.26, "high_us": 333.5}
        if figure.origin == "modelled":
            times = {"at_peak_us": 15.55, "estimated_us": 1234.56}
        outcome.rows = [
            {"what": "m", "outcome": "info", "text": "", "data": {"micro": figure.as_dict()}},
            {"what": "s", "outcome": "info", "text": "", "data": {"shape": shape | times}},
        ]
        if failing:
            outcome.error = "took ```too``` long"
            outcome.rows.append({"what": "w", "outcome": "failed", "text": "a|b", "data": {}})
        outcomes.append(outcome)
    outcomes.append(supervise.Outcome(Planned("last", "the last", 7), supervise.SKIPPED))
    if not failing:
        outcomes.pop()
    made = document.document({"CPU": "x<y"}, outcomes[:2], outcomes[2:], 98.76, failing)
    return document.markdown(made | {"created": "2026-01-02T03:04:05+00:00"})


def of_launches() -> str:
    rows = [
        launch._row("a path", [2.5 + i * 0.01 for i in range(100)], [2.0] * 100),
        launch._row("slower", [9.0] * 100, [1.0 + i * 0.125 for i in range(100)]),
    ]
    return launch.markdown([launch.Measurement("the title", rows)])


def every_text() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, records in RUNS.items():
        for unit in ("ms", "us"):
            for wide in (False, True):
                title = f"{name}, {unit}{', wide' * wide}"
                found[title] = shown(
                    lambda to, records=records, unit=unit, wide=wide: report.print_table(  # type: ignore[misc]
                        to, "a title", records, wide=wide, unit=unit
                    )
                )
            found[f"{name}, {unit}, Markdown"] = report.markdown(records, unit)
        found[f"{name}, CSV"] = of_csv(records)
        found[f"{name}, fastest"] = "\n".join(r.label for r in report.fastest(records))
    for name, record in (("short", SHORT), ("long", LONG)):
        found[f"details, {name}"] = shown(
            lambda to, record=record: report.print_details(to, record)
        )  # type: ignore[misc]
    faster = dataclasses.replace(SHORT, cycles=100_000.0, times=Times(47.6, 83.3, 50.0))
    found["compared"] = compared([SHORT, LONG, PEER], [faster, LONG, REFUSED])
    found["report"] = of_report(False)
    found["failing report"] = of_report(True)
    found["launches"] = of_launches()
    return found


def listing() -> str:
    """Without blanks at the ends of lines."""
    parts = [f"==== {name}\n{text}" for name, text in every_text().items()]
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines()) + "\n"


def test_tables_are_those_that_are_listed() -> None:
    assert listing().splitlines() == LISTED.read_text().splitlines()


def test_pairs_are_compared_at_one_clock() -> None:
    found = compare([SHORT, PEER], [dataclasses.replace(SHORT, times=Times(1, 2, 30.864))])
    assert found.geometric_mean == pytest.approx(0.5) and found.only_before == (PEER,)
    other: dict[str, Any] = {"clocks": CLOCKS | {"sustained_ghz": 1.3}}
    with pytest.raises(ValueError, match=r"was modelled at 1\.2 and at 1\.3 GHz"):
        compare([SHORT], [dataclasses.replace(SHORT, **other)])
    with pytest.raises(ValueError, match="is modelled in one file and measured in the other"):
        compare([SHORT], [GPU])
    (pair,) = compare([SHORT], [GPU], allow_mixed=True).pairs
    assert pair.microseconds == (SHORT.times.estimated_us, 77.77)


if __name__ == "__main__":
    sys.stdout.write(f"{LISTED.write_text(listing())} characters\n")
