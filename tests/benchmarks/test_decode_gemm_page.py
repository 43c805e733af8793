"""The benchmark behind docs/studies/gemm-design.md runs, and keeps what it knows of peers."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"


def test_decode_gemm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    file = tmp_path / "rows.json"
    known = {"m": 1, "n": 128, "k": 2880, "bias": True, "us": 9.0, "FlyDSL": [5.0, "a tile"]}
    file.write_text(json.dumps({"clock_mhz": 2100, "reading": "default", "rows": [known]}))
    argv = ["decode_gemm.py", "--json", str(file), "--flydsl", str(tmp_path), "--shapes"]
    monkeypatch.setattr(sys, "argv", [*argv, "1,128,2880,bias", "3,40,256"])
    importlib.import_module("decode_gemm").main()
    first, second = json.loads(file.read_text())["rows"]
    assert first["us"] < 9 and first["FlyDSL"] == known["FlyDSL"]
    assert (second["n"], second["bias"], second["FlyDSL"]) == (40, False, None)
    output = capsys.readouterr().out
    assert "us, modelled at 2100 MHz" in output and "| 1, 128, 2880, bias | 0.18 |" in output
    assert "With a launch of 2.7 us on both sides" in output
    assert "(FlyDSL) |" in output
