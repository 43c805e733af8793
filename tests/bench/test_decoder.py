"""Passes of whole decoders: launches, the floor, products by shorter ones, what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from amdattn.bench import decoder, decoder_parts
from amdattn.bench.clocks import clocks
from amdattn.bench.decoder_parts import Model
from amdattn.cli.commands import app
from amdattn.device import runtime

TINY = Model(2, 256, 4, 2, 512, 1000, head_dim=64)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decoder.MODELS, "tiny", TINY)


def test_a_step() -> None:
    told: list[str] = []
    found = decoder.timed("tiny", 3, 1, 100, advance=told.append)
    names = ["embedding", "qkv", "attention", "o", "gate_up", "down", "last norm", "head", "token"]
    assert [part.name for part in found.parts] == told == names
    assert [part.times for part in found.parts] == [1, 2, 2, 2, 2, 2, 1, 1, 1]
    assert found.launches_of_layer == 5 and found.launches == 2 * 5 + 4
    arch = clocks(runtime.device_props())
    assert found.clock_ghz == arch.peak_ghz and found.origin == "modelled"
    kernels = sum(part.times * part.us for part in found.parts)
    assert found.us == pytest.approx(kernels + found.launches * arch.launch_us)
    # By hand: weights, keys and values, rows of the embedding and the head; six launches a layer.
    weights = 512 * 256 + 256 * 256 + 1024 * 256 + 512 * 256
    elements = 2 * (weights + 2 * 3 * 100 * 2 * 64) + (1000 + 3) * 256
    floor = 2 * elements / arch.hbm_bytes_per_ns / 1000 + 16 * arch.launch_us
    assert found.floor_us == pytest.approx(floor) and found.of_floor == found.us / floor


def test_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm is a launch of its own there; a long product follows from two shorter ones."""
    monkeypatch.setitem(decoder.MODELS, "tiny", Model(1, 1024, 4, 2, 256, 1000, head_dim=64))
    whole = decoder.timed("tiny", 1, 130, 130)
    assert [part.name for part in whole.parts].count("norm") == 2
    assert whole.clock_ghz == clocks(runtime.device_props()).sustained_ghz
    monkeypatch.setattr(decoder, "_MOST_FLOP", 2 * 130 * 512 * 1024 - 1)
    monkeypatch.setattr(decoder, "_LENGTHS", (384, 640))
    told: list[str] = []
    extrapolated = decoder.timed("tiny", 1, 130, 130, advance=told.append)
    assert [name for name in told if "shorter" in name] == [
        f"{name}, shorter ones" for name in ("qkv", "gate_up")
    ]
    for one, other in zip(whole.parts, extrapolated.parts, strict=True):
        assert other.us == pytest.approx(one.us, rel=0.1), one.name
    causal = 4 * 130 * 131 // 2 * 4 * 64
    assert next(part.flops for part in whole.parts if part.name == "attention") == causal
    assert 0 < whole.of_the_limit < 1 and whole.energy["joules"] > 0


def test_norms_of_heads() -> None:
    found = decoder_parts.parts(Model(2, 256, 4, 2, 512, 1000, head_dim=64, qk_norm=True), 1, 1, 64)
    assert [part.times for part in found if part.name == "norms, rotary"] == [2]


def test_the_command(tmp_path: Path) -> None:
    line = ["bench", "llama", "--shape", "tiny", "--batch", "1,2", "--context", "64"]
    rows = tmp_path / "rows.csv"
    done = CliRunner().invoke(app, [*line, "--csv", str(rows), "--json"])
    assert done.exit_code == 0, done.output
    passes = json.loads(done.stdout)["passes"]
    assert [one["batch"] for one in passes] == [1, 2]
    assert passes[0]["launches"] == 14 and "activity" not in passes[0]["parts"][0]
    with rows.open() as file:
        assert len(list(csv.DictReader(file))) == 2 * 9
    shown = CliRunner().invoke(app, line)
    assert "of the floor" in shown.stdout and "5 per layer" in shown.stdout
    assert "modelled at" in shown.stdout


def test_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "step.png"
    line = ["bench", "llama", "--shape", "tiny", "--batch", "1", "--plot", str(picture)]
    done = CliRunner().invoke(app, [*line, "--context", "64"])
    assert done.exit_code == 0 and picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (("gpt", 1, 1, 8), "shape='gpt' must be one of"),
        (("tiny", 0, 1, 8), "batch=0 must be at least 1"),
        (("tiny", 1, 9, 8), "context=8 must be at least tokens=9, the new tokens"),
    ],
)
def test_refused(sizes: tuple[str, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decoder.timed(*sizes)
