"""The script of decode's bars: which shapes it takes, what it compares, and that it runs."""

from __future__ import annotations

import argparse
import csv
import json
import sys

import pytest

from benchmarks import attention_decode, decode_shapes, readings
from benchmarks.decode_shapes import Floor, Shape


def test_floor_and_bar() -> None:
    """The fixed 3 us count up to 20 us of floor, 15 % above."""
    least = Floor(4.2e6, 2100)
    assert least.us(42_000_000) == pytest.approx(10)
    assert least.bar_us(42_000_000) == pytest.approx(13)
    assert least.bar_us(420_000_000) == pytest.approx(115)


def test_what_is_left_out_is_told_by_reason() -> None:
    """A cache without pages has room for the longest sequences, whatever their lengths."""
    options = argparse.Namespace(batch=[1, 8], keys=[1024, 4096], heads=[(8, 1)], most_mb=10)
    whole = 8 * decode_shapes.MOST_KEYS * 2 * 256
    taken, left_out = attention_decode.shapes_to_run(options, whole)
    assert taken == [Shape(1, 1024, 8, 1), Shape(8, 1024, 8, 1), Shape(1, 4096, 8, 1)]
    assert [*left_out.values()] == [[Shape(8, 4096, 8, 1)]]
    taken, left_out = attention_decode.shapes_to_run(options, whole - 1)
    assert [shape.batch for shape in taken] == [1, 1]
    assert [len(shapes) for shapes in left_out.values()] == [2]


def test_pages_that_are_used_are_each_there_once() -> None:
    table = decode_shapes.spread_table(3, 40, 16, 8)
    assert sorted(table[:, :3].ravel()) == [*range(9)]
    assert not table[:, 3:].any()


def test_one_shape(tmp_path, monkeypatch, capsys) -> None:
    """Both files have a row for each kind of cache, with ratios of what is beside them."""
    files = tmp_path / "rows.json", tmp_path / "rows.csv"
    arguments = ["--batch", "1", "--keys", "1024", "--heads", "8/1", "--markdown"]
    arguments += ["--json", str(files[0]), "--csv", str(files[1])]
    monkeypatch.setattr(sys, "argv", ["attention_decode", *arguments])
    attention_decode.main()
    rows = json.loads(files[0].read_text())["rows"]
    assert [row["cache"] for row in rows] == [cache.name for cache in attention_decode.CACHES]
    for row in rows:
        assert row["us"] > row["floor_us"]
        assert row["of_bar"] == pytest.approx(row["us"] / row["bar_us"])
    with files[1].open(newline="") as file:
        assert [row["us"] for row in csv.DictReader(file)] == [str(row["us"]) for row in rows]
    us, of_bar = rows[1]["us"], rows[1]["of_bar"]
    assert f"| 8/1, paged | 1 |\n|--:|--:|\n| 1024 | {us:.1f} ({of_bar:.2f}) |" in (
        capsys.readouterr().out
    )


def test_the_greatest_share_of_a_bar_under_any_reading(monkeypatch) -> None:
    """A cache of pages takes longer beside what one without takes under the same reading."""
    slow = {"default": (10.0, 10.2, 6.0), "slow-waits": (20.0, 22.0, 6.0)}
    monkeypatch.setattr(readings.readings, "names", lambda arch: tuple(slow))
    times = iter([us for name in slow for us in slow[name]])
    monkeypatch.setattr(attention_decode, "ours_us", lambda *of, **options: next(times))
    shape, least = decode_shapes.Shape(1, 1024, 8, 1), decode_shapes.Floor(52428.8, 2100)
    rows, paged, _ = attention_decode.run_each(shape, least)
    assert (rows.us, rows.most) == (
        10.0,
        readings.OfReading(20 / least.bar_us(shape.nbytes), "slow-waits"),
    )
    assert paged.most == readings.OfReading(22 / 21, "slow-waits")
    assert paged.record["reading"] == "slow-waits"
    assert attention_decode.cells([rows])[-1] == str(rows.most)
    assert attention_decode.heads(with_readings=True)[:8][-1] == "most of bar"
    assert (
        "Under any reading at most 1.05 (slow-waits)."
        in attention_decode.summary([[rows, paged, _]])[1]
    )


def test_table_for_a_terminal(capsys) -> None:
    shape = Shape(2, 1024, 8, 1)
    found = [attention_decode.Found(shape, name, 3.0, 6.0, 7.5) for name in ("rows", "paged", "8")]
    attention_decode.print_table([found])
    row = ["8/1", "2", "1024", "1", "3.0", *("7.5", "1.25") * 3]
    assert capsys.readouterr().out.split()[-len(row) :] == row
