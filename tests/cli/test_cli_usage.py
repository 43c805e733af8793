"""What a new user types: versions, typos, old spellings, files that cannot be written."""

from __future__ import annotations

import inspect
import json
import os
import re
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer

import amdattn
from amdattn import cli
from amdattn.cli import errors
from amdattn.output_files import check_outputs, replacing
from tests.support.cli_command import Command

LENGTHS = {"--seqlen-q": "-sq", "--seqlen-kv": "-skv", "--heads-q": "-hq", "--heads-kv": "-hkv"}

FORMER = ("-q", "-s", "-k", "--scale", "--window")  # of this program


def every_command() -> dict[str, Any]:
    """All commands of the program, by what one types."""
    found: dict[str, Any] = {}

    def walk(name: str, command: Any) -> None:
        found[name] = command
        for child, of_child in getattr(command, "commands", {}).items():
            walk(f"{name} {child}".strip(), of_child)

    walk("", typer.main.get_command(cli.app))
    return found


COMMANDS = every_command()


def test_version(amdattn_command: Command) -> None:
    assert amdattn_command("--version") == (0, f"amdattn {amdattn.__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command(amdattn_command: Command, name: str) -> None:
    """Each says what it does, and what each option is."""
    status, out, err = amdattn_command(*name.split(), "--help")
    assert status == 0 and not err and "Usage: amdattn" in out
    for parameter in COMMANDS[name].params:
        assert getattr(parameter, "help", "") or parameter.name == "help", parameter.name


@pytest.mark.parametrize("name", COMMANDS)
def test_lengths_are_spelled_alike(amdattn_command: Command, name: str) -> None:
    """Where there is a length there are its names; former and foreign ones name them."""
    command = COMMANDS[name]
    options = {option: parameter for parameter in command.params for option in parameter.opts}
    for long, short in LENGTHS.items():
        if long in options or short in options:
            assert options[long] is options[short]
    for old in FORMER:
        new = errors.RENAMED[old]
        if new in options and old not in options:
            assert_renamed(amdattn_command, name, old, new)


def test_names_of_other_tools(amdattn_command: Command) -> None:
    for old, new in errors.RENAMED.items():
        if new != "--lse":
            assert_renamed(amdattn_command, "explain attention", old, new)
    assert_renamed(amdattn_command, "run", "--return-lse", "--lse")


def assert_renamed(command: Command, name: str, old: str, new: str) -> None:
    status, out, err = command(*name.split(), old, 5)
    assert status == 2 and not out
    assert f"No such option: {old}; it is {new}" in err and err.count("\n") == 1


def test_a_partition_is_explained(amdattn_command: Command) -> None:
    status, out, _ = amdattn_command("explain", "--json", "--device", "MI300X:CPX")
    assert status == 0 and json.loads(out)["device"].endswith("MI300X CPX (gfx942), 38 CUs")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nosuch", "No such command 'nosuch'"),
        ("bench atention", "No such command 'atention'"),
        ("explain --cusal", "No such option: --cusal"),
        ("explain -d abc", "abc"),
        ("explain --window-size 3", "'--window-size' requires 2 arguments"),
        ("explain --seqlen-q 0", "seqlen_q=0 (an empty tensor) must be in 1..2147483647"),
        ("explain -sq 99999999999", "seqlen_q=99999999999 must be in 1..2147483647"),
        ("explain --device MI9", "--device='MI9' must be one of MI300X, "),
        ("explain --dtype float8", "dtype='float8' is not known"),
        ("explain gemm -m 1 -n 64", "Missing option '--k'"),
        ("explain gemm -m 0 -n 64 -k 64", "m=0 must be in"),
        ("explain gemm -m 1 -n 64 -k 64 --activation relu", "activation=relu is not built"),
        ("run", "Missing option '--q'"),
        ("demo -sq 0", "seqlen_q=0"),
        ("demo -sq 2000000000", "seqlen_q=2000000000 is not built"),
        ("demo --seed -1", "--seed"),
        ("selftest --seed -1", "--seed"),
        ("compare nowhere.json nowhere.json", "nowhere.json: No such file or directory"),
        ("compare . .", "is not a regular file"),
        ("build nowhere.hip", "source 'nowhere.hip' is not a file"),
        ("build .", "source '.' is not a file"),
        ("check", "Missing argument"),
        ("check gemm -sq 5", "--seqlen-q cannot be combined with gemm"),
        ("check attention --mutate", "No such option: --mutate"),
        ("check attention --lengths 3:4 -b 2", "--batch cannot be combined with --lengths"),
        ("bench attention --preset flux -sq 5", "--seqlen-q cannot be combined with --preset"),
        ("bench attention --simulated-workgroups 3", "--simulated-workgroups needs --peer"),
        ("bench attention --clock-mhz 999999", "--clock-mhz"),
        ("bench attention --plot", "--plot='' needs a file: --plot KIND FILE"),
        ("bench attention --plot stalls", "--plot='stalls' needs a file: --plot KIND FILE"),
        ("bench gemm --dtype int4", "dtype='int4' is not known"),
        ("bench launch --rounds 0", "rounds=0 must be at least 2"),
        ("bench llama --batch 1,x", "--batch='1,x' must be numbers of at least 1"),
        ("bench llama --shape gpt", "shape='gpt' must be one of llama3-8b"),
        ("tune gemm -m 1 -n 8 -k 8 --splits 1,x", "--splits='1,x' must be counts of at least 1"),
    ],
)
def test_a_wrong_command_line(
    amdattn_command: Command, tmp_path: Path, line: str, message: str
) -> None:
    status, out, err = amdattn_command(*line.split(), folder=tmp_path)
    assert status == 2 and not out and message in err, err
    assert err.count("\n") == 1 and "Traceback" not in err, err
    assert list(tmp_path.iterdir()) == []


# -- files ---------------------------------------------------------------------------------------

NPY = ("--q", "q.npy", "--k", "k.npy", "--v", "v.npy")
WRITERS = [
    (("run", *NPY), "--out"),
    (("run", *NPY, "--out", "out.npy"), "--lse"),
    (("bench", "attention"), "--csv"),
    (("bench", "attention"), "--trace"),
    (("bench", "gemm"), "--csv"),
    (("bench", "gemm"), "--trace"),
    (("bench", "llama"), "--csv"),
    (("bench", "llama"), "--plot"),
    (("tune", "gemm", "-m", "1", "-n", "64", "-k", "64"), "--table"),
    (("build", "k.hip"), "--output"),
    (("build", "k.hip"), "--assembly"),
    (("selftest",), "--report"),
    (("exec", "true"), "--findings"),
    (("exec", "true"), "--profiles"),
]


def test_every_option_that_names_a_file_to_write_is_tried() -> None:
    """Paths of commands are read, or are in WRITERS."""
    read = {
        *(
            "q",
            "k",
            "v",
            "sinks",
            "alibi_slopes",
            "cu_seqlens_q",
            "cu_seqlens_k",
            "before",
            "after",
        ),
        *("suppressions", "source", "include", "files"),
    }
    written = {option.removeprefix("--") for _, option in WRITERS}
    for command in (*cli.app.registered_commands, *cli.bench.app.registered_commands):
        assert command.callback is not None
        parameters = inspect.signature(command.callback, eval_str=True).parameters.values()
        for parameter in parameters:
            if "Path" in str(parameter.annotation):
                assert parameter.name in read | written, parameter


@pytest.mark.parametrize(("args", "option"), WRITERS)
def test_a_file_that_cannot_be_written(
    amdattn_command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: tuple[str, ...],
    option: str,
) -> None:
    """It is named before anything runs, whatever is wrong with it."""

    def work(*_: object, **__: object) -> None:
        raise AssertionError("work began")

    for place in (
        *("amdattn.flash_attn_func", "amdattn.bench.operation.run_operation"),
        *("amdattn.bench.planned.run_planned", "amdattn.tuning.tune", "amdattn.compiler.build"),
    ):
        monkeypatch.setattr(place, work)
    (tmp_path / "k.hip").write_text("")
    before = sorted(tmp_path.iterdir())
    (folder := tmp_path / "folder").mkdir()
    # What follows the program of exec is the program's.
    args, rest = (args[:1], args[1:]) if args[0] == "exec" else (args, ())
    for path, why in ((folder, "it is a folder"), (folder / ("x" * 300), "File name too long")):
        status, _, err = amdattn_command(*args, option, path, *rest, folder=tmp_path)
        assert status == 2 and f"{option}='{path}' cannot be written: {why}" in err, err
    if option != "--table":  # whose folder is made
        path = folder / "a" / "b"
        status, _, err = amdattn_command(*args, option, path, *rest, folder=tmp_path)
        assert status == 2 and f"there is no folder {folder / 'a'}" in err
    assert sorted(tmp_path.iterdir()) == sorted([*before, folder]) and not any(folder.iterdir())


def test_a_plot_that_cannot_be_written(
    amdattn_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amdattn.bench.plots._figure", lambda: None)
    plots = ("--plot", "stalls", tmp_path / "a.svg", "--plot", "sweep", tmp_path / "no" / "b.svg")
    status, _, err = amdattn_command("bench", "gemm", *plots)
    assert status == 2 and f"there is no folder {tmp_path / 'no'}" in err
    plots = ("--plot", "stalls", tmp_path / "a.svg", "--plot", "sweep", tmp_path / "a.svg")
    status, _, err = amdattn_command("bench", "gemm", *plots)
    assert status == 2 and "is also the file of --plot" in err


def test_outputs_change_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("before")
    file.chmod(0o640)
    with pytest.raises(RuntimeError), replacing(file) as new:
        new.write_text("half")
        raise RuntimeError
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]
    (link := tmp_path / "link").symlink_to(file)
    with replacing(link) as new:
        new.write_text("after")
    assert link.is_symlink() and file.read_text() == "after"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    with replacing(Path("/dev/null")) as new:
        new.write_text("gone")
    assert not Path("/dev/null").is_file()
    with pytest.raises(ValueError, match=r"--b='.*link' is also the file of --a"):
        check_outputs([("--a", file), ("--b", link)])
    check_outputs([("--a", Path("/dev/null")), ("--b", Path("/dev/null")), ("--c", None)])


@pytest.mark.device
@pytest.mark.parametrize(("file", "status"), [("/dev/full", 2), ("closed", 1)])
def test_stdout_that_takes_nothing(file: str, status: int) -> None:
    """A full disk is an error, a reader that has gone is not worth a word; no traceback."""
    read, write = os.pipe()
    os.close(read)
    target = write if file == "closed" else os.open(file, os.O_WRONLY)
    child = subprocess.run(
        [sys.executable, "-m", "amdattn.cli", "explain", "--json"],
        stdout=target,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert child.returncode == status, child.stderr
    assert ("No space left on device" in child.stderr) == (status == 2)
    assert child.stderr.count("\n") == (status == 2)


# -- plans ---------------------------------------------------------------------------------------


def test_explain(amdattn_command: Command) -> None:
    line = "explain gemm -m 16 -n 2560 -k 7168 --json"
    status, out, err = amdattn_command(*line.split())
    assert status == 0, err
    plan = amdattn.plan_gemm(16, 2560, 7168, device="MI300X")
    assert json.loads(out) == dict(plan.as_dict())
    options = "--dtype float16 --out-dtype float32 --bias --alpha 2 --activation silu --split-k 2"
    line = f"explain gemm -m 3 -n 64 -k 96 {options} --no-aligned --no-deterministic"
    status, out, err = amdattn_command(*line.split(), "--json")
    problem = json.loads(out)["problem"]
    assert problem == (
        "gemm_nt float16, m=3 n=64 k=96 out_dtype=float32 bias=True alpha=2 split_k=2 "
        "aligned=False activation=silu deterministic=False"
    )
    for line in ("explain --causal --json", "explain attention --causal --json"):
        status, out, err = amdattn_command(*line.split())
        assert status == 0 and "causal=True" in json.loads(out)["problem"], err
    status, out, _ = amdattn_command("explain")
    assert status == 0 and "KV split" in out


def test_plans_are_a_line() -> None:
    shown = repr(amdattn.plan_attention(1, 4096, 4096, 32, 8, 128, device="MI300X", causal=True))
    assert shown == (
        "<AttentionPlan bfloat16 b1 sq4096 skv4096 h32/8 d128 causal: "
        "attn_fwd_bf16_d128_q256_rtne x 512>"
    )
    plan = amdattn.plan_gemm(1, 4096, 4096, device="MI300X", bias=True)
    shown = repr(plan)
    assert shown.startswith("<GemmPlan m1 n4096 k4096 bias: gemm_nt_bf16_")
    assert len(repr(plan.launches)) < 100 and len(repr(plan.kernel)) < 100


def test_info_is_short(amdattn_command: Command) -> None:
    status, out, err = amdattn_command("info")
    assert status == 0 and out.count("\n") < 64, err
    counted = Counter(kernel.arch for kernel in amdattn.kernels() if kernel.op == "attn_fwd")
    (row,) = (line for line in out.splitlines() if "attn_fwd" in line)
    counts = [int(cell) for cell in re.findall(r" (\d+) ", row)]
    assert counts == [counted[arch] for arch in sorted(counted)] and len(counts) > 1
    status, out, _ = amdattn_command("info", "--kernels")
    assert all(kernel.name in out for kernel in amdattn.kernels())
