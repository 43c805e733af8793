"""Tuning of matrix products: the command, the table, and plans that follow it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import amdattn
from amdattn import cli, tuning
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm import planning, plans, table as gemm_table
from amdattn.ops.gemm.cases import OPERATION
from amdattn.ops.gemm.problem import GemmProblem
from build_scripts import gemm_table as build
from tests.support.shipped import shipped

PROPS = KNOWN_DEVICES["MI300X"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a user who has none yet."""
    path = tmp_path / "amdattn" / "gemm.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("AMDATTN_GEMM_TABLE")
    plans.forget_plans()
    yield path
    monkeypatch.undo()
    plans.forget_plans()


def tune(*args: str) -> str:
    result = CliRunner().invoke(cli.app, ["tune", "gemm", *args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_plans_follow_the_table(table: Path) -> None:
    shape = ("--n", "80", "--k", "1024", "--splits", "1,3")
    assert "modelled at 2100 MHz" in tune("--m", "5", "--m", "40", *shape)
    text = amdattn.explain_gemm(5, 80, 1024, device="MI300X")
    assert "tuned: gemm_nt_bf16_" in text and "us modelled at 2100 MHz" in text
    (key, tuned), *_ = gemm_table.load(table).items()
    assert (key.m, key.n, key.k, key.num_cus) == (5, 80, 1024, 304) and tuned.us > 0
    # Whatever it says is done, not only what is fastest anyway.
    gemm_table.store(table, [(key, gemm_table.Tuned("gemm_nt_bf16_m64n64", 3, 32, 9.0, "by hand"))])
    plans.forget_plans()
    plan = amdattn.plan_gemm(5, 80, 1024, device=amdattn.device_props())
    assert (plan.kernel.name, plan.splits) == ("gemm_nt_bf16_m64n64", 3)
    a, b = (np.ones((rows, 1024), as_dtype("bfloat16").numpy()) for rows in (5, 80))
    assert (amdattn.gemm_nt(a, b) == 1024).all()
    assert len(gemm_table.load(table)) == 2  # the other row count is still there
    # Not where something else decides, and not for other problems.
    for options in ({"split_k": 2}, {"aligned": False}, {"dtype": "float16"}):
        text = amdattn.explain_gemm(5, 80, 1024, device="MI300X", **options)
        assert "tuned" not in text


def test_every_choice_is_timed(table: Path) -> None:
    output = tune("--m=17", "--n=40", "--k=512", "--dtype=float16", "--json", "--dry-run")
    (found,) = json.loads(output)["tuned"]
    problem = GemmProblem(17, 40, 512, "float16")
    choices = {
        (c.kernel.name, c.splits, c.columns) for c in tuning.choices_of(OPERATION, problem).items
    }
    assert {(row["kernel"], row["splits"], row["columns"]) for row in found["choices"]} == choices
    aligned = {
        row.name
        for row in shipped("gemm_nt")
        if (row.dtype, row.accepts["layout"]) == ("float16", "nt")
        and row.accepts["k_multiple"] > 1
        and "norms_rows" not in row.accepts
    }
    assert {kernel for kernel, *_ in choices} == aligned and len(choices) > 3 * len(aligned)
    times = [row["us"] for row in found["choices"]]
    assert times == sorted(times) and times[0] > 1
    assert not table.exists()


def test_activations_with_factors_and_adding_are_tuned_apart(table: Path) -> None:
    shape = "--m=3", "--n=24", "--k=256", "--splits=2"
    tune(*shape)
    tune(*shape, "--no-deterministic")
    tune(*shape, "--activation", "silu_and_mul", "--bias")
    keys = set(gemm_table.load(table))
    assert {(key.has_factors, key.deterministic) for key in keys} == {
        *((False, True), (False, False), (True, True))
    }


def test_the_shipped_table_is_of_the_shipped_kernels(table: Path) -> None:
    shipped = gemm_table.load(gemm_table.shipped_path())
    assert {key.chip for key in shipped} == {"MI300X", "MI355X"}
    assert all(sum(key.chip == chip for key in shipped) >= 100 for chip in ("MI300X", "MI355X"))
    for key, tuned in shipped.items():
        problem, props = GemmProblem(key.m, key.n, key.k, key.dtype), KNOWN_DEVICES[key.chip]
        assert key.num_cus == props.num_cus
        assert (key.deterministic, key.has_factors) == (True, False)
        choices = planning.choices(problem, props, amdattn.kernels()).items
        ways = [(choice.kernel.name, choice.splits, choice.columns) for choice in choices]
        assert (tuned.kernel, tuned.splits, tuned.columns) in ways, f"{key}: {tuned}"
        assert gemm_table.lookup(problem, props) == tuned
    # The user's own comes before it.
    key = gemm_table.Key.of(problem, PROPS)
    own = gemm_table.Tuned("gemm_nt_bf16_any", 1, 16, 1.0, "by hand")
    gemm_table.store(table, [(key, own)])
    assert gemm_table.lookup(problem, PROPS) == own


def test_the_script_of_the_shipped_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped.json"
    monkeypatch.setattr(gemm_table, "shipped_path", lambda: shipped)
    for arguments in (["--help"], ["--products", "16"], ["--output"], ["--rows", "1"] * 2 + ["x"]):
        with pytest.raises(SystemExit):
            build.main(arguments)
    assert not shipped.exists()
    other = tmp_path / "other.json"
    small = ["--products", "16,64", "40,128", "--rows", "1", "17", "--candidates", "2"]
    build.main([*small, "--output", str(other)])
    assert not shipped.exists()
    assert {(key.m, key.n, key.k) for key in gemm_table.load(other)} == {
        *((1, 16, 64), (17, 16, 64), (1, 40, 128), (17, 40, 128))
    }
    assert "17, 40, 128: gemm_nt_bf16_" in capsys.readouterr().err
    # By default the shipped one, which then has nothing of before, except of other chips.
    old = gemm_table.Tuned("gemm_nt_old", 1, 16, 2.0, "measured")
    gone, kept = (
        gemm_table.Key.of(GemmProblem(5, 16, 64), props)
        for props in (PROPS, KNOWN_DEVICES["MI355X"])
    )
    gemm_table.store(shipped, [(gone, old), (kept, old)])
    build.main(small)
    assert gemm_table.load(shipped) == {**gemm_table.load(other), kept: old}


def test_a_kernel_that_is_gone(table: Path) -> None:
    key = gemm_table.Key.of(GemmProblem(1, 16, 64), PROPS)
    gemm_table.store(table, [(key, gemm_table.Tuned("gemm_nt_old", 1, 16, 2.0, "measured"))])
    with pytest.raises(ValueError, match="kernel='gemm_nt_old' must be one of gemm_nt_bf16_"):
        amdattn.explain_gemm(1, 16, 64, device="MI300X")


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"schema": 1}', '{"schema": 3, "entries": [{"for": {"m": true}, "choice": {}}]}'],
)
def test_files_that_are_none(table: Path, content: str) -> None:
    table.parent.mkdir()
    table.write_text(content)
    with pytest.raises(ValueError, match="is no table of `amdattn tune gemm`"):
        amdattn.plan_gemm(1, 16, 64, device="MI300X")


@pytest.mark.parametrize("name", ["gone.json", "gone/gone.json", "."])
def test_a_variable_that_names_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Only the user's own place may be empty."""
    named = str(tmp_path / name)
    monkeypatch.setenv("AMDATTN_GEMM_TABLE", named)
    with pytest.raises(ValueError) as caught:
        amdattn.plan_gemm(1, 48, 192, device="MI300X")
    assert str(caught.value).startswith(f"AMDATTN_GEMM_TABLE={named!r}")
    a = np.ones((1, 192), as_dtype("bfloat16").numpy())
    with pytest.raises(ValueError, match="AMDATTN_GEMM_TABLE="):
        amdattn.gemm_nt(a, a)


def test_tune_writes_the_file_that_the_variable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "gemm.json"
    monkeypatch.setenv("AMDATTN_GEMM_TABLE", str(path))
    tune("--m", "1", "--n", "16", "--k", "64")
    assert len(gemm_table.load(path)) == 1
    assert amdattn.plan_gemm(1, 16, 64, device="MI300X").launches


def test_refusals(table: Path) -> None:
    choices = tuning.choices_of(OPERATION, GemmProblem(1, 16, 64)).items
    with pytest.raises(ValueError, match=r"splits=\(7,\) must include one of \[1\]"):
        cli.tune._chosen(choices, [7], 0)


def test_default_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AMDATTN_GEMM_TABLE")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere")
    assert gemm_table.default_path() == Path("/somewhere/amdattn/gemm.json")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert gemm_table.default_path() == Path.home() / ".config" / "amdattn" / "gemm.json"


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


@pytest.mark.parametrize(
    "config", ["/dev/null", "/dev/null/x", "not/absolute", "/" + "x" * 5000, "{loop}", "{file}", ""]
)
@pytest.mark.parametrize("home", [None, "/dev/null", "/nowhere", ""])
def test_configurations_that_cannot_be_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: str, home: str | None
) -> None:
    """Products are planned as without a table of the user's, and storing one says what to do."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("{}")
    config = config.format(loop=tmp_path / "loop", file=tmp_path / "file")
    usual = amdattn.plan_gemm(3, 64, 64, device="MI300X")
    monkeypatch.delenv("AMDATTN_GEMM_TABLE")
    monkeypatch.setenv("XDG_CONFIG_HOME", config)
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr(Path, "home", no_home)
    else:
        monkeypatch.setenv("HOME", home)
    plans.forget_plans()
    gemm_table._of_user.cache_clear()
    assert amdattn.plan_gemm(3, 64, 64, device="MI300X").launches == usual.launches
    if config.startswith("/"):  # else the home folder of whoever runs the tests may be taken
        with pytest.raises(ValueError, match=r"cannot be created .*--table or AMDATTN_GEMM_TABLE"):
            cli.tune._make_folder(gemm_table.default_path().parent)
    elif home is None:
        with pytest.raises(ValueError, match="no home folder; name a file in AMDATTN_GEMM_TABLE"):
            gemm_table.default_path()
    monkeypatch.undo()
    plans.forget_plans()
    gemm_table._of_user.cache_clear()


def test_a_table_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AMDATTN_GEMM_TABLE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "amdattn").mkdir()
    (tmp_path / "amdattn" / "gemm.json").write_text("{}")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    plans.forget_plans()
    with pytest.warns(RuntimeWarning, match=r"gemm\.json may not be read"):
        assert amdattn.plan_gemm(3, 72, 64, device="MI300X").launches
    plans.forget_plans()
