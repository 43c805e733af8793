"""python -m examples.llama: as its user types it, and what it says when something is wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import amdattn
from examples.llama import make_tiny, small_models
from examples.llama.__main__ import app
from examples.llama.checkpoint import Checkpoint
from examples.llama.config import read
from examples.llama.reference import Reference
from examples.llama.small_models import config_of, write
from tests.support.paths import ROOT

if TYPE_CHECKING:  # recent versions of typer do not need it
    from click.testing import Result

COMMAND = [sys.executable, "-m", "examples.llama"]


def environment(device: str) -> dict[str, str]:
    return os.environ | {"AMDATTN_DEVICE": device, "PYTHONPATH": str(ROOT), "COLUMNS": "300"}


def run(*options: str) -> Result:
    return CliRunner().invoke(app, list(options), env={"COLUMNS": "300"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {**config_of("qwen3"), "eos_token_id": None}
    return write(tmp_path_factory.mktemp("llama"), config, shards=2)


@pytest.fixture(scope="module")
def greedy(folder: Path) -> list[int]:
    """Of a prompt 5 6 7, as float64 goes on."""
    reference, ids = Reference(Checkpoint(folder), read(folder)), [5, 6, 7]
    gaps = []
    for _ in range(5):
        row = reference.logits(ids)[-1]
        gaps.append(np.diff(np.sort(row)[-2:])[0])
        ids.append(int(row.argmax()))
    assert min(gaps) > 0.1  # no rounding decides
    return ids[3:]


FIGURES = (
    r"^5 tokens of 1 prompt in [\d.]+ s, the first after [\d.]+ s: [\d.]+ tokens/s \(virtual: .* "
    r"played by this CPU, no measure of a GPU\); a step of one is 16 kernels, one graph$"
)


def test_a_prompt(folder: Path, greedy: list[int]) -> None:
    done = run(str(folder), "--ids", "5 6 7", "--tokens", "5")
    assert done.exit_code == 0, done.output
    assert [int(word) for word in done.stdout.split()] == greedy
    assert re.search(FIGURES, done.stderr.strip())


def test_the_other_architecture(folder: Path, greedy: list[int]) -> None:
    done = subprocess.run(
        [*COMMAND, str(folder), "--ids", "5 6 7", "--tokens", "5"],
        cwd=ROOT,
        env=environment("virtual:gfx950"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [int(word) for word in done.stdout.split()] == greedy
    assert re.search(FIGURES, done.stderr.strip())


def test_a_batch(folder: Path, greedy: list[int], tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text("5 6 7\n\n8, 9\n")
    done = run(str(folder), "--ids", "--batch", str(file), "--tokens", "5", "--no-graph")
    assert done.exit_code == 0, done.stdout + done.stderr
    texts = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert set(texts) == {"[1]", "[2]"}
    assert [int(word) for word in texts["[1]"].split()] == greedy
    assert "10 tokens of 2 prompts" in done.stderr and "launched one by one" in done.stderr


def test_comparison_with_float64(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = str(folder), "--ids", "5 6 7", "--tokens", "3", "--check"
    done = run(*command)
    assert done.exit_code == 0 and done.stderr.splitlines()[-1] == "ok", done.output
    plan = amdattn.plan_rms_norm
    monkeypatch.setattr(amdattn, "plan_rms_norm", lambda *n, **x: plan(*n, **{**x, "eps": 0.3}))
    turn = amdattn.plan_rotary
    monkeypatch.setattr(amdattn, "plan_rotary", lambda *n, **x: turn(*n, **{**x, "norm_eps": 0.3}))
    done = run(*command)
    assert done.exit_code == 1 and "WRONG" in done.stderr.splitlines()[-1], done.output


def test_a_model_to_try(tmp_path: Path) -> None:
    """As README.md has it."""
    made = CliRunner().invoke(typer_of(small_models.main), [str(tmp_path), "--name", "mistral"])
    assert made.exit_code == 0, made.output
    assert run(str(tmp_path), "--ids", "5", "--tokens", "2").exit_code == 0
    made = CliRunner().invoke(typer_of(small_models.main), [str(tmp_path), "--name", "gpt"])
    assert made.exit_code == 2 and "'gpt' is none of" in made.output


def typer_of(function: Callable[..., None]) -> typer.Typer:
    made = typer.Typer()
    made.command()(function)
    return made


def test_a_shared_prefix(folder: Path, greedy: list[int], tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text("5 6 7\n5 6 9 3\n")
    done = run(str(folder), "--ids", "--batch", str(file), "--share", "--tokens", "5", "--check")
    assert done.exit_code == 0, done.output
    texts = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert [int(word) for word in texts["[1]"].split()] == greedy
    assert "20 kernels" in done.stderr
    done = run(str(folder), "5 6 7", "--ids", "--share", "--tokens", "5")  # of one sequence
    assert [int(word) for word in done.stdout.split()] == greedy


def test_no_folder_and_no_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_tiny, "ROOT", tmp_path)
    monkeypatch.setitem(sys.modules, "jax", None)
    done = run()
    assert done.exit_code == 1
    assert "error: a model is made by JAX, which is not installed: pip install jax" in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["5"], "has no tokenizer.json; --ids takes and prints numbers"),
        (["--ids"], "give either a prompt or --batch FILE"),
        (["--ids", "5 x"], "--ids: '5 x' is no list of numbers"),
        (["--ids", "5 96", "--tokens", "5"], "token 96 must be in 0..95"),
        (["--ids", "5", "--tokens", "64"], "65 tokens are more than the 64 positions"),
        (["--ids", "--batch", "/nowhere"], "--batch: [Errno 2]"),
        (["--ids", "--batch", os.devnull], "--batch: /dev/null has no prompts"),
        (["--ids", "5", "--page", "24", "--tokens", "5"], "page_size=24"),
    ],
)
def test_errors(folder: Path, options: list[str], text: str) -> None:
    done = run(str(folder), *options)
    assert done.exit_code == 1 and not done.stdout
    assert done.stderr.startswith("error: ") and text in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_interruption(folder: Path) -> None:
    """Between tokens: nothing is left behind but what is printed."""
    command = [*COMMAND, str(folder), "--ids", "5", "--tokens", "63", "--no-graph"]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment("virtual:gfx942"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130 and errors.decode().strip() == "interrupted"
