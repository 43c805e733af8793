"""benchmarks.attention_peers, as its user types it, and what a benchmark takes for a peer."""

from __future__ import annotations

import json
import os
import sys
import types
from typing import Any

import pytest

from amdattn.bench.kernels import Functions, Launch, Operands
from amdattn.bench.modelled import Modelled, NotLinear
from amdattn.bench.operation import run_operation
from amdattn.bench.peer import PeerKind
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from benchmarks import attention_peers

SIZES = ("-b", 1, "-hq", 2, "-hkv", 1, "-sq", 200)
AITER = os.environ.get("AMDATTN_AITER_DIR")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setattr("amdattn.cli.output.stdout._width", 240)

    def command(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attention_peers", *map(str, args)])
        status = attention_peers.main()
        out, errors = capsys.readouterr()
        return status, out, " ".join(errors.split())

    return command


def records(run: Any, *args: object) -> list[dict[str, Any]]:
    status, out, errors = run(*SIZES, *args, "--json")
    assert status == 0 and not errors, errors
    return json.loads(out)["records"]


def test_ours_is_first_and_alone_without_a_peer(run: Any) -> None:
    (row,) = records(run, "--round-mode", "rtz")
    assert (row["peer"], row["round_mode"]) == ("amdattn", "rtz") and row["cycles"] > 0


@pytest.mark.skipif(not AITER, reason="AMDATTN_AITER_DIR names no aiter checkout")
def test_aiter(run: Any) -> None:
    rows = records(run, "--round-mode", "all", "--peer", f"aiter={AITER}")
    assert [(row["peer"], row["round_mode"]) for row in rows] == [
        (peer, mode) for peer in ("amdattn", "aiter") for mode in ("rtne", "rtna", "rtz")
    ]
    cycles = [row["cycles"] for row in rows[3:]]
    assert cycles == sorted(cycles, reverse=True)
    status, out, _ = run(*SIZES, "-d", 64, "--peer", f"aiter={AITER}")
    assert status == 0
    assert "aiter rtne: head_dim=64 and head_dim_v=64 are not 128 or 192 and 128" in out


@pytest.mark.oracles
def test_triton(run: Any) -> None:
    pytest.importorskip("triton")
    rows = records(run, "--causal", "--peer", "triton")
    assert rows[1]["peer"] == "triton" and rows[1]["cycles"] > 0 and rows[1]["sha256"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("--peer", "cutlass"),
            "must be one of aiter=DIR, moonmath=DIR, triton, gluon=DIR, flydsl=",
        ),
        (("--peer", "gluon=/none"), "gluon=/none has no kernels of gluon with their NAME.json"),
        (("--peer", "aiter="), "--peer='aiter=' must be one of aiter=DIR"),
        (("--peer", "triton="), "--peer='triton=' must be one of aiter=DIR"),
        (("--peer", "triton=3"), "--peer='triton=3' must be one of aiter=DIR"),
        (("--peer", "aiter=/none"), "aiter=/none is no checkout of ROCm/aiter"),
        (("--peer", "aiter=/none"), "git clone https://github.com/ROCm/aiter"),
        (("--peer", "moonmath=/none"), "moonmath=/none has no moonmath_rtne.hsaco"),
        (("--peer", "object=x"), "--peer object=FILE needs --grid"),
        (("--preset", "flux", "-sq", "5"), "--seqlen-q cannot be combined with --preset"),
        (("--plot", "pie", "x.png"), "plot='pie' must be one of roofline"),
    ],
)
def test_malformed(run: Any, args: tuple[object, ...], message: str) -> None:
    status, out, errors = run(*args)
    assert status == 2 and not out and message in errors, errors


def test_a_peer_that_cannot_run_is_an_error_before_anything_runs(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("work began")

    monkeypatch.setattr("amdattn.bench.operation.run_operation", work)
    monkeypatch.setitem(sys.modules, "triton", None)
    status, _, errors = run("--preset", "moonmath", "--peer", "triton")
    assert status == 2 and "peer triton needs Triton: pip install triton" in errors, errors

    broken = types.ModuleType("triton")
    broken.__version__ = "0.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", broken)
    status, _, errors = run("--preset", "moonmath", "--peer", "triton")
    assert status == 2 and "Triton 0.0 cannot compile for gfx942" in errors, errors
    assert "pip install --upgrade triton" in errors


# -- what a peer is --------------------------------------------------------------------------------


class Foreign:
    """Nobody's operation, which the package has not heard of: our launches under another name."""

    peer, round_mode = "foreign", "rtz"

    def __init__(self) -> None:
        self._ours = Shipped("rtz")
        self.options: list[dict[str, Any]] = []

    def refusal(self, shape: Shape) -> str:
        return "" if shape.head_dim == 128 else f"head_dim={shape.head_dim} is not 128"

    def launches(self, shape: Shape, operands: Operands) -> list[Launch]:
        return self._ours.launches(shape, operands)

    def model(self, shape: Shape, functions: Functions, **options: Any) -> list[Modelled]:
        self.options.append(options)
        if options["method"] == "sampled":
            raise NotLinear("it cannot be sampled")
        return self._ours.model(shape, functions, **options)


def test_any_operation_can_be_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, foreign = Shape(1, 2, 1, 200, 200, 128), Foreign()
    record = run_operation(foreign, shape, Functions()).record
    ours = run_operation(Shipped("rtz"), shape, Functions()).record
    assert (record.peer, record.cycles) == ("foreign", ours.cycles)
    assert foreign.options[0]["method"] == "auto"
    known = {"method", "clock_mhz", "trace_events", "advance", "inputs"}
    assert {*foreign.options[0]} == known
    of = Shape(1, 2, 1, 200, 200, 64)
    assert run_operation(foreign, of, Functions()).record.refused == "head_dim=64 is not 128"
    refused = run_operation(foreign, shape, Functions(), method="sampled").record.refused
    assert refused == "it cannot be sampled"
    monkeypatch.setattr("amdattn.bench.operation.is_virtual", lambda: False)
    measured = run_operation(foreign, shape, Functions()).record
    assert measured.origin == "measured" and measured.sha256 == ours.sha256


def test_kinds_of_peers() -> None:
    with_value = PeerKind("aiter=DIR", lambda value, modes: [Shipped(mode) for mode in modes])
    without = PeerKind("triton", lambda value, modes: [Shipped("rtne")])
    assert with_value.value("aiter=a=b/c") == "a=b/c" and without.value("triton") == ""
    for wrong in ("aiter", "aiter=", "aite=x", "", "="):
        assert with_value.value(wrong) is None, wrong
    for wrong in ("triton=", "triton=x", "trito", ""):
        assert without.value(wrong) is None, wrong
