"""What commands print of made-up results, cell by cell."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import amdattn
from amdattn import cli, kernels, tuning
from amdattn.bench import micro as bench
from amdattn.cli import errors, micro, operations, tune
from amdattn.errors import BindingError
from amdattn.ops.gemm import table as gemm_table
from amdattn.ops.gemm.choice import Choice
from amdattn.ops.gemm.problem import GemmProblem


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What the commands of this file print."""
    text = io.StringIO()
    console = Console(file=text, width=250)
    for module in (micro, operations, tune):
        monkeypatch.setattr(module, "stdout", console)
    return text


def cells(text: str) -> list[list[str]]:
    """Of a table's rows, its heads first."""
    lines = (line for line in text.splitlines() if "│" in line or "┃" in line)
    return [[c.strip() for c in line.replace("┃", "│").split("│")[1:-1]] for line in lines]


def tuned(count: int) -> tuning.Tuning:
    kernel = next(row for row in kernels() if row.name == "gemm_nt_bf16_m4n4")
    choice = Choice(kernel, 3, 48, cost=None, passes=1)  # type: ignore[arg-type]
    timed = tuple(tuning.Timed(choice, 2.0 * (i + 1), 7.0) for i in range(count))
    return tuning.Tuning(GemmProblem(5, 80, 1024), timed, "modelled at 2100 MHz")


@pytest.mark.parametrize(("rows", "last"), [(2, "2 more, up to 8.00 us"), (4, ""), (9, "")])
def test_the_fastest_ways_to_a_product(printed: io.StringIO, rows: int, last: str) -> None:
    tune._show(tuned(4), rows)
    text = printed.getvalue()
    assert "m5 n80 k1024, us modelled at 2100 MHz" in text
    assert cells(text) == [
        ["kernel", "columns", "splits", "us", "to the fastest", "estimated"],
        *(
            ["gemm_nt_bf16_m4n4", "48", "3", f"{2 * i}.00", f"{i}.00", "7.00"]
            for i in range(1, min(rows, 4) + 1)
        ),
    ]
    assert text.rstrip().endswith(last or "┘") and ("more" in text) == bool(last)
    facts = tune._facts(tuned(2))
    assert (facts["how"], facts["problem"]["n"]) == ("modelled at 2100 MHz", 80)  # type: ignore[index]
    fastest = tuned(3).timed[0]
    best = gemm_table.Tuned.of(fastest.choice, fastest.us, "by hand")
    assert (best.us, best.columns, best.splits, best.how) == (2.0, 48, 3, "by hand")


@pytest.mark.parametrize(
    ("splits", "counts"),
    [("", []), ("1", [1]), ("1, 2,16", [1, 2, 16]), ("0", None), ("1,,2", None)],
)
def test_counts_of_parts(splits: str, counts: list[int] | None) -> None:
    if counts is None:
        with pytest.raises(ValueError, match=f"--splits='{splits}' must be counts of at least 1"):
            tune._counts(splits)
    else:
        assert tune._counts(splits) == counts


def test_figures_of_micro_kernels(printed: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = bench.rows("chain_lds_b128")
    found = [
        bench.Figure(row, "modelled", 64.0),
        bench.Figure(row, "measured", 107.123, low=105.0, high=109.06),
    ]
    monkeypatch.setattr(bench, "figures", lambda rows: iter(found))
    micro.micro("chain_lds_b128")
    both = "64: they do; 108: a vendor tool's constant"
    assert cells(printed.getvalue()) == [
        ["micro kernel", "unit", "settles", "readings", "value", "fits"],
        [row.what, "clk", row.settles, both, "64", "modelled"],
        [row.what, "clk", row.settles, both, "107.1 (105 to 109.1)", "a vendor tool's constant"],
    ]
    assert "modelled, not measured: rates at the peak clock of 2.1 GHz" in printed.getvalue()
    assert bench.markdown(found).splitlines()[2] == (
        f"| {row.what} | clk | {row.settles} | {both} | 64 | modelled |"
    )
    with pytest.raises(ValueError, match="--json and --markdown cannot be combined"):
        micro.micro(as_json=True, markdown=True)
    with pytest.raises(ValueError, match="reading='most' must be one of default"):
        micro.micro(reading="most")


@pytest.mark.parametrize("as_json", [False, True])
def test_info_without_a_device(
    printed: io.StringIO, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    def fails() -> dict[str, str]:
        raise BindingError("no GPU can be used: [x.so] is broken")

    monkeypatch.setattr(operations, "_device_facts", fails)
    result = CliRunner().invoke(cli.app, ["info", *(["--json"] if as_json else [])])
    assert result.exit_code == 1
    assert "no GPU can be used: [x.so] is broken" in result.stderr
    if as_json:
        facts = json.loads(result.stdout)
        assert facts["device"] == {} and facts["error"].endswith("is broken")
        names = [row["name"] for row in facts["kernels"]]
        assert names == [kernel.name for kernel in amdattn.kernels()]
        first, row = facts["kernels"][0], amdattn.kernels()[0]
        assert first["tile"] == dict(row.tile) and first["params"] == dict(row.params)
        assert first["vgpr (agpr)"] == f"{row.vgpr} ({row.agpr})"
        assert first["lds_bytes"] == row.lds_bytes and first["sha256"] == row.sha256
    else:
        assert "--kernels lists them one by one" in printed.getvalue()


def test_facts_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = operations._device_facts()
    assert facts["CUs"] == "304 on 8 XCDs" and facts["memory"] == "192 GiB"
    assert facts["partition"] == "SPX; planned with 4.20 TB/s of HBM"
    assert "two runtimes" not in facts and "passed over" not in facts
    monkeypatch.setattr("amdattn.device.binding.other_runtimes", lambda _: "there is another")
    assert operations._device_facts()["two runtimes"] == "there is another"


@pytest.mark.parametrize(
    ("number", "text"), [(71526333, "7.15.26333"), (60443484, "6.4.43484"), (100100007, "10.1.7")]
)
def test_versions_of_hip(number: int, text: str) -> None:
    assert operations._hip_version(number) == text


def run_info(*options: str) -> Any:
    return CliRunner().invoke(cli.app, ["info", *options], catch_exceptions=False)


def test_groups_of_kernels_count_all_of_them(printed: io.StringIO) -> None:
    assert run_info().exit_code == 0
    rows = cells(printed.getvalue())
    head = next(i for i, row in enumerate(rows) if row[0] == "operation")
    counts = [cell for row in rows[head + 1 :] for cell in row[2:]]  # of each architecture
    assert sum(int(count or 0) for count in counts) == len(amdattn.kernels())


def test_clocks_become_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, int] = {}

    class Profile:
        def __init__(self, **options: int) -> None:
            given.update(options)
            self.launches = [SimpleNamespace(cycles=4200)]

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(tuning.virtual, "profile", Profile)
    ran: list[int] = []
    assert tuning._Modelled().us(lambda: ran.append(1)) == pytest.approx(2.0)
    assert given == {"clock_mhz": 2100} and ran == [1]
    assert tuning._Modelled().how == "modelled at 2100 MHz"
    monkeypatch.setattr(tuning, "do_bench", lambda run, return_mode: (run(), 0.25)[1])
    assert tuning._Measured().us(lambda: ran.append(2)) == 250 and ran == [1, 2]
    assert tuning._Measured().how == "measured on AMD Instinct MI300X"


@pytest.mark.parametrize(
    ("error", "code", "status", "said"),
    [
        (None, 0, 0, ""),
        (None, 1, 1, ""),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 0, 1, ""),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 2, 2, ""),
        (OSError(errno.ENOSPC, "No space left on device"), 0, 2, "stdout: No space left on device"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, 2, "stdout: No space left on device"),
    ],
)
def test_output_that_cannot_be_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError | None,
    code: int,
    status: int,
    said: str,
) -> None:
    """What is in the buffers until the end of the command."""
    told: list[str] = []

    def flush() -> None:
        if error is not None:
            raise error

    with open(tmp_path / "out", "w") as file:
        monkeypatch.setattr(errors, "show", told.append)
        monkeypatch.setattr(errors.sys, "stdout", SimpleNamespace(flush=flush, fileno=file.fileno))
        found = errors.run(lambda **_: code)  # type: ignore[arg-type]
        os.write(file.fileno(), b"from here on nowhere")
    assert (found, told) == (status, [said] if said else [])
    assert bool((tmp_path / "out").read_bytes()) == (error is None)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, ("interrupted",)),
        (BrokenPipeError(), 1, None),
        (BindingError("no GPU"), 2, ("no GPU", "BindingError")),
        (ValueError("a=3 must be 4"), 2, ("a=3 must be 4", "Error")),
    ],
)
def test_errors_become_exit_codes(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, said: tuple[str, ...] | None
) -> None:
    told: list[tuple[str, ...]] = []
    monkeypatch.setattr(errors, "show", lambda *given: told.append(given))

    def fails(**_: object) -> int:
        raise error

    assert errors.run(fails) == status  # type: ignore[arg-type]
    assert told == ([said] if said else [])
