"""Tables fit a terminal of 80 columns, and say what their numbers are."""

import dataclasses
import io

from rich.console import Console

from amdattn.bench import report
from amdattn.bench.record import MEASURED, MODELLED, Record, Times, leading_us
from amdattn.bench.terminal import Line, print_groups

CLOCKS = {"peak_ghz": 2.1, "sustained_ghz": 1.2, "launch_us": 2.7}


def record(shape, peer, mode, microseconds, **others):
    return Record(
        "attention",
        shape,
        {},
        peer,
        mode,
        MODELLED,
        flops=4 * 10**12,
        cycles=1200 * microseconds,
        times=Times(microseconds / 2, microseconds, 0.75 * microseconds),
        use={"mfma": 0.5, "mfma_device": 0.375, "valu": 0.25, "lds": 0.125},
        stalls={"waitcnt": 0.5, "barrier": 0.25},
        bytes={"hbm": 10**9},
        clocks=CLOCKS,
        workgroups=40000,
        rounds=3,
        residents=2,
        **others,
    )


LONG = "b2 h128/8 s131072x131072 d128 causal bhsd"
RECORDS = [
    record(LONG, "amdattn", "rtne", 123456.0),
    record(LONG, "aiter", "rtz", 61728.0),
    record(LONG, "object=a_code_object_with_a_very_long_name_indeed.hsaco", "", 246912.0),
    Record("attention", LONG, {}, "amdattn", "rtz", MODELLED, refused="rtz is not built"),
    record("b1 h1 s1 d64", "triton", "rtne", 1000.0),
    Record("attention", "b1 h1 s1 d64", {}, "amdattn", "rtz", MODELLED, refused="rtz is not built"),
]


def printed(records, width=80, **options):
    console = Console(file=io.StringIO(), width=width)
    report.print_table(console, "title", records, **options)
    return console.file.getvalue()


def test_80_columns():
    lines = printed(RECORDS).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("modelled, not measured:") and "1.2 GHz" in lines[2]
    assert lines[3] == "TFLOP/s and ratios use the second time"
    header = lines[5].split("  ")
    assert [text.strip() for text in header if text] == [
        *("kernel", "mode", "ms est.", "ms 1.2 GHz", "TFLOP/s", "MFMA/CU", "MFMA/all", "vs first")
    ]
    assert lines[6] == LONG
    ours = ["amdattn", "rtne", "92.592", "123.456", "32", "50.0%", "37.5%", "1.00x"]
    assert lines[7].split() == ours
    assert lines[8].split()[2:] == ["46.296", "61.728", "65", "50.0%", "37.5%", "2.00x"]
    assert lines[9].endswith("0.50x") and "…" in lines[9]
    assert lines[10].split() == ["amdattn", "rtz", "refused", "-"]
    assert lines[11] == "b1 h1 s1 d64" and lines[12].split()[-1] == "1.00x"
    assert "2 shapes amdattn rtz: rtz is not built" in lines  # once


def test_wide():
    text = printed(RECORDS, wide=True)
    (row,) = (line for line in text.splitlines() if "aiter rtz" in line)
    for cell in (LONG, "74.074", "61.728", "30.864", "25.0%", "waitcnt 50%, barrier 25%", "40000"):
        assert cell in row, cell


def test_one_kernel_per_shape_is_compared_with_nothing():
    assert "vs first" not in printed([RECORDS[0], RECORDS[4]])


def test_the_estimate_leads_where_all_launches_of_a_shape_are_short():
    """999 us and less at the sustained clock; else the constant clock's time is compared."""
    short = [record("s", "a", "", 999.0), record("s", "b", "", 333.0)]
    assert leading_us(short) == [0.75 * 999, 0.75 * 333]
    slow = record("s", "c", "", 1000.0)
    assert leading_us([*short, slow]) == [999.0, 333.0, 1000.0]
    (alone,) = leading_us([dataclasses.replace(short[0], times=Times(1.0, 2.0))])
    assert alone == 2.0  # no estimate
    assert "use the first time, because the launches are short" in printed(short)
    text = "use the first time if all launches of a shape are short"
    assert text in printed([*short, RECORDS[0]])


def test_readings_are_apart():
    ways = [
        dataclasses.replace(record("s", peer, "rtz", us), reading=reading)
        for reading, us in (("default", 2000.0), ("lost-slots-2", 3000.0))
        for peer in ("a", "b")
    ]
    lines = printed(ways).splitlines()
    assert "s" in lines and "s, lost-slots-2" in lines
    assert set(report.relative_speeds(ways).values()) == {1.0}


def test_the_first_that_ran_is_the_reference():
    speeds = report.relative_speeds([RECORDS[3], RECORDS[1], RECORDS[0]])
    assert speeds == {1: 1.0, 2: 0.5}


def test_measured():
    times = Times(median_us=2000.0, low_us=1900.0, high_us=2100.0)
    measured = dataclasses.replace(RECORDS[0], origin=MEASURED, times=times)
    text = printed([measured, dataclasses.replace(measured, peer="triton")])
    assert "1.900..2.100" in text and "measured ms" in text and "modelled" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_groups_without_headings_are_not_indented():
    console = Console(file=io.StringIO(), width=20)
    print_groups(
        console, ["path", "µs"], {"": [Line({"path": "a name too long for it", "µs": "1"})]}
    )
    assert console.file.getvalue().splitlines() == ["path              µs", "a name too long…   1"]


def test_a_plan_that_stands_for_another_is_named():
    one = record("b1 h32 s4096 d128", "amdattn", "rtne", 300.0, sampled={"merged_apart": True})
    (line,) = [line for line in report.notes([one]) if "merges" in line]
    assert "not the plan that runs" in line and "--sampling full" in line
    assert one.label == "amdattn rtne, parts merged apart"
    console = Console(file=io.StringIO(), width=100)
    report.print_table(console, "", [one])
    assert "amdattn (other plan)" in console.file.getvalue()
    assert not any("merges" in line for line in report.notes(RECORDS))
