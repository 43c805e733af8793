"""Prints attention over a cache beside its bars, modelled.

    python -m benchmarks.attention_decode [--batch B ...] [--keys KEYS ...] [--heads Q/KV ...]
                                          [--most-mb MB] [--readings] [--markdown] [--json FILE]
                                          [--csv FILE]

A step of one query a sequence, bfloat16, 128 columns, caches cold, planned for 131072 keys. Of the
bound device, an MI300X or MI355X, at its peak clock; AMDATTN_DEVICE says which. The bar of a cache
without pages is its bytes at the rate that its HBM sustains, and 3 us or 15 % more; a launch is
counted on neither side. Of one in pages it is the time without them, and 0.5 us or 5 % more; of one
of 8-bit floats the time of the first times 0.6 from 128 MB of that one on, 0.8 from 32 MB on, below
as of its bytes. Shapes with more than --most-mb of keys and values are left out, since the virtual
device takes about a second for every 200 MB: above that their time is their bytes'. --readings adds
the greatest share of its bar that a step takes under any reading of the model
(docs/generated/readings.md); each of them takes as long as the rest.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

import amdattn
from amdattn.arch.readings import DEFAULT
from amdattn.cli.output import progress_bar, stderr, stdout
from benchmarks.decode_shapes import Floor, Shape, floor, ours_us
from benchmarks.readings import OfReading, each_reading

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
KEYS = (1024, 4096, 16384, 65536, 131072)
HEADS = ((64, 8), (32, 8), (8, 1))
_MB = 1e6
# What a cache in pages may take more than one without.
_PAGES_US, _PAGES_SHARE = 0.5, 0.05
# What one of 8-bit floats may take of the time of one of 16 bits with so many bytes.
_SHARES_OF_8_BITS = ((128 * _MB, 0.6), (32 * _MB, 0.8))


@dataclass(frozen=True)
class Cache:
    """A kind of cache: a column.

    Attributes
    ----------
    bar_us : callable
        What a step over it may take, by shape, floor and the time of the first kind.
    """

    name: str
    page_size: int
    is_quantized: bool
    bar_us: Callable[[Shape, Floor, float], float]


def _of_bytes(shape: Shape, least: Floor, first_us: float) -> float:
    return least.bar_us(shape.nbytes)


def _of_first(shape: Shape, least: Floor, first_us: float) -> float:
    return first_us + max(_PAGES_US, _PAGES_SHARE * first_us)


def _of_16_bits(shape: Shape, least: Floor, first_us: float) -> float:
    for nbytes, share in _SHARES_OF_8_BITS:
        if shape.nbytes >= nbytes:
            return share * first_us
    return least.bar_us(shape.nbytes // 2)


CACHES = (
    Cache("rows", 0, False, _of_bytes),
    Cache("paged", 16, False, _of_first),
    Cache("8 bits", 0, True, _of_16_bits),
)


@dataclass(frozen=True)
class Found:
    """A shape over one kind of cache."""

    shape: Shape
    cache: str
    floor_us: float
    bar_us: float
    us: float
    most: OfReading | None = None

    @property
    def of_bar(self) -> float:
        """At most 1 where the bar is met."""
        return self.us / self.bar_us

    @property
    def record(self) -> dict[str, Any]:
        """For files."""
        rest = {"cache": self.cache, "floor_us": self.floor_us, "bar_us": self.bar_us}
        ratios: dict[str, Any] = {"of_floor": self.us / self.floor_us, "of_bar": self.of_bar}
        if self.most:
            ratios |= {"most_of_bar": self.most.ratio, "reading": self.most.reading}
        return {**asdict(self.shape), "bytes": self.shape.nbytes, **rest, "us": self.us, **ratios}


def run(shape: Shape, least: Floor) -> list[Found]:
    """One shape over every kind of cache."""
    found: list[Found] = []
    for cache in CACHES:
        us = ours_us(shape, cache.page_size, least.clock_mhz, is_quantized=cache.is_quantized)
        first = found[0].us if found else us
        bar = cache.bar_us(shape, least, first)
        nbytes = shape.nbytes // 2 if cache.is_quantized else shape.nbytes
        found.append(Found(shape, cache.name, least.us(nbytes), bar, us))
    return found


def run_each(shape: Shape, least: Floor) -> list[Found]:
    """The same, with what it takes of its bars at most under any reading."""
    by_reading = each_reading(partial(run, shape, least))
    return [
        replace(
            one, most=max(OfReading(found[i].of_bar, name) for name, found in by_reading.items())
        )
        for i, one in enumerate(by_reading[DEFAULT])
    ]


def heads(with_readings: bool = False) -> list[str]:
    """Of a table's columns."""
    columns = ["heads", "b", "keys", "MB", "floor"]
    for cache in CACHES:
        columns += [cache.name, "of bar"] + ["most of bar"] * with_readings
    return columns


def cells(found: list[Found]) -> list[str]:
    """One row of a table."""
    shape = found[0].shape
    row = [f"{shape.heads_q}/{shape.heads_kv}", str(shape.batch), str(shape.keys)]
    row += [f"{shape.nbytes / _MB:.0f}", f"{found[0].floor_us:.1f}"]
    for one in found:
        row += [f"{one.us:.1f}", f"{one.of_bar:.2f}"]
        row += [str(one.most)] if one.most else []
    return row


def print_table(rows: list[list[Found]]) -> None:
    """For a terminal, with what misses its bar in red."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in heads(with_readings=bool(rows[0][0].most)):
        table.add_column(name, justify="right", no_wrap=True)
    for found in rows:
        missed = any(one.of_bar > 1 for one in found)
        table.add_row(*cells(found), style="red" if missed else "")
    stdout.print(table)


def markdown(rows: list[list[Found]]) -> str:
    """A table for each number of heads and kind of cache: us by keys and sequences, and of bars."""
    every = {(one.shape, one.cache): one for found in rows for one in found}
    shapes = [found[0].shape for found in rows]
    batches = sorted({shape.batch for shape in shapes})
    tables = []
    for heads_q, heads_kv in dict.fromkeys((s.heads_q, s.heads_kv) for s in shapes):
        for cache in CACHES:
            lines = [f"| {heads_q}/{heads_kv}, {cache.name} | {' | '.join(map(str, batches))} |"]
            lines.append("|--:|" + "--:|" * len(batches))
            for keys in sorted({shape.keys for shape in shapes}):
                row = [str(keys)]
                for batch in batches:
                    one = every.get((Shape(batch, keys, heads_q, heads_kv), cache.name))
                    row.append(f"{one.us:.1f} ({_of_bar(one)})" if one else "")
                if any(row[1:]):
                    lines.append(f"| {' | '.join(row)} |")
            tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _of_bar(one: Found) -> str:
    return f"{one.of_bar:.2f}" + (f", at most {one.most.ratio:.2f}" if one.most else "")


def summary(rows: list[list[Found]]) -> list[str]:
    """How many bars are met, and the farthest miss, by kind of cache."""
    lines = []
    for name in (cache.name for cache in CACHES):
        every = [one for found in rows for one in found if one.cache == name]
        worst = max(every, key=lambda one: one.of_bar)
        met = sum(one.of_bar <= 1 for one in every)
        most = max((one.most for one in every if one.most), default=None)
        lines.append(
            f"{name}: {met} of {len(every)} bars are met; {worst.shape} takes {worst.of_bar:.3f} "
            "of its own, the most." + f" Under any reading at most {most}." * (most is not None)
        )
    return lines


def shapes_to_run(
    options: argparse.Namespace, memory_bytes: int
) -> tuple[list[Shape], dict[str, list[Shape]]]:
    """Shapes, and those that are left out by reason."""
    every = [
        Shape(b, keys, *of) for of in options.heads for keys in options.keys for b in options.batch
    ]
    too_large = f"more than the device's {memory_bytes / 2**30:.0f} GiB"
    too_long = f"more than --most-mb {options.most_mb} of keys and values"
    left_out: dict[str, list[Shape]] = {too_large: [], too_long: []}
    taken = []
    for shape in every:
        if max(shape.device_bytes(cache.page_size) for cache in CACHES) > memory_bytes:
            left_out[too_large].append(shape)
        elif shape.nbytes > options.most_mb * _MB:
            left_out[too_long].append(shape)
        else:
            taken.append(shape)
    return taken, {why: shapes for why, shapes in left_out.items() if shapes}


def pair(text: str) -> tuple[int, int]:
    """Heads of q and of the cache, from Q/KV."""
    q, _, kv = text.partition("/")
    if not (q.isdigit() and kv.isdigit() and int(kv) and int(q) % int(kv) == 0):
        raise argparse.ArgumentTypeError(f"{text!r} must be Q/KV, where KV divides Q")
    return int(q), int(kv)


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--keys", type=int, nargs="+", default=KEYS)
    parser.add_argument("--heads", type=pair, nargs="+", default=HEADS, metavar="Q/KV")
    parser.add_argument("--most-mb", type=int, default=1024, help="of keys and values")
    parser.add_argument("--readings", action="store_true", help="the greatest share under any")
    parser.add_argument("--markdown", action="store_true", help="by keys and sequences")
    parser.add_argument("--json", type=Path, help="write every result here")
    parser.add_argument("--csv", type=Path, help="the same")
    options = parser.parse_args()
    props, least = amdattn.device_props(), floor()
    shapes, left_out = shapes_to_run(options, props.memory_bytes)
    if not shapes:
        parser.error(f"no shape is left: {', '.join(left_out)}")
    rows: list[list[Found]] = []
    records: list[dict[str, Any]] = []
    with progress_bar() as progress:
        task = progress.add_task("decode", total=sum(shape.nbytes for shape in shapes))
        for shape in shapes:
            progress.update(task, description=str(shape))
            rows.append((run_each if options.readings else run)(shape, least))
            progress.advance(task, shape.nbytes)
            records += [one.record for one in rows[-1]]
            if options.json:  # after each row, since they take their time
                document = {"device": props.name, "clock_mhz": least.clock_mhz, "rows": records}
                options.json.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{props.name}: us, modelled at {least.clock_mhz} MHz\n")
    if options.markdown:
        print(markdown(rows))
    else:
        print_table(rows)
    print("\n" + "\n".join(summary(rows)))
    for why, skipped in left_out.items():
        stderr.print(f"{len(skipped)} shapes are left out, with {why}")
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(records[0]))
            writer.writeheader()
            writer.writerows(records)


if __name__ == "__main__":
    main()
