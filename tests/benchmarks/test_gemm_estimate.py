"""The script that judges and fits the planner's estimates: small products, made-up times."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from amdattn import tuning
from amdattn.ops.gemm import cost as gemm_cost
from amdattn.ops.gemm.cases import OPERATION
from amdattn.ops.gemm.problem import GemmProblem
from benchmarks import gemm_estimate

SMALL = [GemmProblem(2, 40, 512), GemmProblem(20, 200, 768), GemmProblem(3, 24, 512, aligned=False)]


@pytest.fixture(autouse=True)
def constants(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, float]]:
    """Fits set them: back to what they are."""
    names = (*gemm_estimate.CONSTANTS, *gemm_estimate.OF_ELEMENTS)
    found = {name: getattr(gemm_cost, name) for name in names}
    yield found
    for name, value in found.items():
        setattr(gemm_cost, name, value)


def test_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gemm_estimate, "products", lambda count: iter(SMALL[:count]))
    file = tmp_path / "launches.json"
    gemm_estimate.main([str(file), "--model", "--products", "3"])
    launches = gemm_estimate.read(file)
    assert {one.problem for one in launches} == set(SMALL)
    assert {one.splits for one in launches} >= {1, 2, 3} and all(one.clk > 1000 for one in launches)
    gemm_estimate.main([str(file), "--fit"])
    output = capsys.readouterr().out
    assert "launches of 2 products; rms error" in output and "_SPLIT_CLK = " in output


def test_a_fit_finds_what_made_the_times(constants: dict[str, float]) -> None:
    problems = [GemmProblem(m, n, 2048) for m in (1, 16, 90) for n in (128, 2560, 5120)]
    launches = [
        gemm_estimate.Launch(problem, one.kernel.name, one.splits, one.columns, one.cost.clk)
        for problem in problems
        for one in gemm_estimate.tried(problem, tuning.choices_of(OPERATION, problem).items)
    ]
    assert gemm_estimate.losses(launches)[problems[0]] < 0.04  # fewer parts unless more save that
    gemm_cost._START_CLK, gemm_cost._SPLIT_CLK = 1500, 1000
    wrong = dataclasses.replace(launches[0], clk=2 * launches[0].clk)
    assert abs(gemm_estimate.errors([wrong])[0]) > 0.5
    found = gemm_estimate.fit(launches, ["_START_CLK", "_SPLIT_CLK"], steps=8)
    assert found["_START_CLK"] == pytest.approx(constants["_START_CLK"], rel=0.02)
    assert found["_SPLIT_CLK"] == pytest.approx(constants["_SPLIT_CLK"], rel=0.02)
