"""examples/jax_train: a thousand steps of each model, which takes minutes."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_every_bar_of_the_readme(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "jax_train"))
    train = importlib.import_module("train")
    train.main(name, steps=1000, seed=0, out=tmp_path)  # which ends the test where one is not met
    with (tmp_path / f"{name}.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header[:3] == ["step", "amdattn", "amdattn held out"] and len(rows) == 1001
