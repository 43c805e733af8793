"""`amdattn run`: every argument of flash_attn_func on .npy files."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import typer

import amdattn
from amdattn import cli
from tests.support.cli_command import Command

FILES = ("--q", "q.npy", "--k", "k.npy", "--v", "v.npy", "-o", "out.npy")


def normal(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape, np.float32)


@pytest.fixture
def arrays(tmp_path: Path) -> tuple[Any, ...]:
    """float16 q, k and v, which are in files."""
    shapes = {"q": (1, 9, 2, 64), "k": (1, 13, 1, 64), "v": (1, 13, 1, 64)}
    made = {name: normal(*shape).astype(np.float16) for name, shape in shapes.items()}
    for name, array in made.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tuple(made.values())


def test_every_argument_has_an_option() -> None:
    """A stream has no meaning there; what is returned besides the result is --lse."""
    run = typer.main.get_command(cli.app).commands["run"]  # type: ignore[attr-defined]
    options = {parameter.name for parameter in run.params}
    for function in (amdattn.flash_attn_func, amdattn.flash_attn_varlen_func):
        missing = set(inspect.signature(function).parameters) - options
        without = {"stream", "return_lse", "return_attn_probs"}
        of_pages = {"block_table", "kv_layout", "k_descale", "v_descale", "seqused_k"}
        of_pages.add("max_total_k")
        assert missing - of_pages == without


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("", {}),
        ("--causal --softmax-scale 0.3", {"causal": True, "softmax_scale": 0.3}),
        ("--window-size 3 1 --top-left", {"window_size": (3, 1), "top_left": True}),
        ("--softcap 2.5 --num-splits 2", {"softcap": 2.5, "num_splits": 2}),
        ("--deterministic --dropout-p 0", {"deterministic": True}),
        ("--sinks sinks.npy", {"sinks": np.array([1.5, -2.0], np.float32)}),
    ],
)
def test_options_reach_the_call(
    amdattn_command: Command,
    tmp_path: Path,
    arrays: tuple[Any, ...],
    line: str,
    options: dict[str, Any],
) -> None:
    np.save(tmp_path / "sinks.npy", np.array([1.5, -2.0], np.float32))
    command = ("run", *FILES, "--lse", "lse.npy", "--json", *line.split())
    status, out, err = amdattn_command(*command, folder=tmp_path)
    assert status == 0, err
    assert json.loads(out)["out"] == "out.npy (1, 9, 2, 64) float16"
    expected, expected_lse = amdattn.flash_attn_func(*arrays, return_lse=True, **options)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    np.testing.assert_array_equal(np.load(tmp_path / "lse.npy"), expected_lse)


def test_layout_and_rounding(
    amdattn_command: Command, tmp_path: Path, arrays: tuple[Any, ...]
) -> None:
    turned = [x.astype(ml_dtypes.bfloat16).swapaxes(1, 2) for x in arrays]
    for name, array in zip("qkv", turned, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    line = ("run", *FILES, "--layout", "bhsd", "--round-mode", "rtz", "--dtype", "bfloat16")
    status, _, err = amdattn_command(*line, folder=tmp_path)
    assert status == 0, err
    expected = amdattn.flash_attn_func(*turned, layout="bhsd", round_mode="rtz")
    written = np.load(tmp_path / "out.npy")
    np.testing.assert_array_equal(written.view(np.uint16), expected.view(np.uint16))


def test_sequences_of_several_lengths(amdattn_command: Command, tmp_path: Path) -> None:
    rows = normal(20, 2, 64).astype(np.float16)
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", rows)
    sums = np.array([0, 5, 20], np.int32)
    np.save(tmp_path / "sums.npy", sums)
    status, _, err = amdattn_command(
        "run", *FILES, "--cu-seqlens-q", "sums.npy", "--causal", folder=tmp_path
    )
    assert status == 0, err
    expected = amdattn.flash_attn_varlen_func(rows, rows, rows, sums, sums, 15, 15, causal=True)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    line = ("run", *FILES, "--cu-seqlens-q", "sums.npy", "--max-seqlen-q", 9)
    status, _, err = amdattn_command(*line, folder=tmp_path)
    assert status == 2 and "cu_seqlens_q has a sequence of 15 rows; the greatest length" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--alibi-slopes slopes.npy", "alibi_slopes is not built (have None)"),
        ("--dropout-p 0.5", "dropout_p=0.5 is not built (have 0.0)"),
        ("--softcap -1", "softcap=-1.0 must be >= 0"),
        ("--window-size -2 0", "window_size=(-2, 0) must be >= -1"),
        ("--round-mode rtz", "round_mode=rtz is not built (have rtne)"),
        ("--num-splits 17", "num_splits=17 is not built (have 0..16"),
        ("--layout sbhd", "layout='sbhd' must be one of"),
        ("--dtype float32", "--dtype='float32' must be one of bfloat16, float16"),
        ("--dtype bfloat16", "--q='q.npy' holds float16, must be bfloat16"),
        ("--sinks q.npy", "sinks has shape (1, 9, 2, 64); this call needs (2,)"),
        ("--sinks nowhere.npy", "nowhere.npy: No such file or directory"),
        ("--sinks text.npy", "--sinks=text.npy: is not a .npy file"),
        ("--sinks empty.npy", "--sinks=empty.npy: is not a .npy file"),
        ("--sinks several.npz", "--sinks=several.npz: is not a .npy file"),
        ("--cu-seqlens-k slopes.npy", "--cu-seqlens-k='slopes.npy' needs --cu-seqlens-q"),
        ("--cu-seqlens-q slopes.npy", "q has shape (1, 9, 2, 64); it must have 3 dimensions"),
        ("--lse out.npy", "--lse='out.npy' is also the file of --out"),
    ],
)
def test_what_is_refused(
    amdattn_command: Command, tmp_path: Path, arrays: tuple[Any, ...], line: str, message: str
) -> None:
    np.save(tmp_path / "slopes.npy", np.array([0, 9], np.int32))
    (tmp_path / "text.npy").write_text("no array")
    (tmp_path / "empty.npy").write_text("")
    np.savez(tmp_path / "several.npz", a=arrays[0], b=arrays[0])
    status, _, err = amdattn_command("run", *FILES, *line.split(), folder=tmp_path)
    assert status == 2 and message in err and err.count("\n") == 1, err
    assert not (tmp_path / "out.npy").exists()


def test_cast_to_either_type(
    amdattn_command: Command, tmp_path: Path, arrays: tuple[Any, ...]
) -> None:
    for name, array in zip("qkv", arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array.astype(np.float64))
    status, _, err = amdattn_command("run", *FILES, "--cast", "--dtype", "float16", folder=tmp_path)
    assert status == 0, err
    written = np.load(tmp_path / "out.npy")
    assert written.dtype == np.float32
    np.testing.assert_array_equal(written, amdattn.flash_attn_func(*arrays).astype(np.float32))
