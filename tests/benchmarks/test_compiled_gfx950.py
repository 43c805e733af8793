"""Others' kernels for gfx950: which object a shape gets, its arguments, and what it walks over."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from amdattn.bench.shapes import Shape
from benchmarks.peers import compiled_gfx950
from benchmarks.peers.compiled_gfx950 import Compiled, Objects, compiled, grid

AT = {"q": 1, "k": 2, "v": 3, "o": 4, "lse": 5}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With an object of no contents for each JSON."""
    props = SimpleNamespace(arch="gfx950")
    monkeypatch.setattr(compiled_gfx950.runtime, "device_props", lambda: props)
    for name, facts in {
        "hk": {"kind": "hipkittens", "d": 128, "hq": 64, "hk": 8, "n": 512, "lds": 160000},
        "fly": {"kind": "flydsl", "d": 64, "hq": 16, "hk": 16, "cross": True},
        "fly_long": {"kind": "flydsl", "d": 64, "hq": 16, "hk": 16, "cross": True},
        "fly_causal": {"kind": "flydsl", "d": 64, "hq": 16, "hk": 16, "causal": True},
        "gluon": {"kind": "gluon", "d": 128, "hq": 16, "hk": 16, "n": 256},
        "gemm": {"kind": "hipkittens_gemm"},
    }.items():
        (tmp_path / f"{name}.hsaco").write_bytes(b"")
        more = {"tiles_from": 1024} if name == "fly_long" else {}
        (tmp_path / f"{name}.json").write_text(json.dumps(facts | more))
    return tmp_path


def square(seqlen: int, heads: int, heads_kv: int, d: int, **more: Any) -> Shape:
    return Shape(2, heads, heads_kv, seqlen, seqlen, d, **more)


def test_objects_are_for_what_they_were_compiled(folder: Path) -> None:
    assert {what.name for what in compiled(folder)} == {
        *("hk", "fly", "fly_long", "fly_causal", "gluon")
    }
    hk, fly = Objects(folder, "hipkittens"), Objects(folder, "flydsl")
    assert not hk.refusal(square(512, 64, 8, 128)) and not hk.compact
    assert hk.refusal(square(1024, 64, 8, 128)) == "there is no object of hipkittens for it"
    assert hk.refusal(square(512, 64, 8, 128, causal=True)).startswith("there is no object")
    assert hk.refusal(square(512, 64, 8, 128, sinks=True)).startswith("window=(-1, -1) and sinks")
    assert hk.refusal(square(512, 64, 8, 128, layout="bhsd")).startswith(
        "head_dim_v=128 and layout"
    )
    assert fly.compact and not fly.refusal(square(777, 16, 16, 64))
    assert not fly.refusal(Shape(1, 16, 16, 512, 256, 64))
    assert fly.refusal(Shape(1, 16, 16, 512, 256, 64, causal=True))  # takes no other length of K


def test_what_is_missing_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"^gluon=.*none has no kernels of gluon"):
        Objects(folder / "none", "gluon")
    props = SimpleNamespace(arch="gfx942")
    monkeypatch.setattr(compiled_gfx950.runtime, "device_props", lambda: props)
    with pytest.raises(ValueError, match=r"^device gfx942 is not gfx950"):
        Objects(folder, "gluon")


def test_walks_know_the_order_of_workgroups(folder: Path) -> None:
    shape = square(512, 64, 8, 128)
    assert grid(shape) == (64, 2, 2)
    hk = Objects(folder, "hipkittens").walk(shape)
    # Neighbours take heads of other K and V: those of a group are 8 apart, on one XCD.
    assert list(hk.stream[:9]) == [0, 1, 2, 3, 4, 5, 6, 7, 0]
    assert list(hk.stream[128:130]) == [8, 9] and set(hk.kv_rows) == {512}
    fly = Objects(folder, "flydsl")
    short, long = square(768, 16, 16, 64), square(1024, 16, 16, 64)
    assert list(fly.walk(short).stream[:3]) == [0, 1, 2]
    assert list(fly.walk(long).stream[:5]) == [0, 0, 0, 0, 1]
    assert list(fly.walk(long).q_end[:5]) == [256, 512, 768, 1024, 256]
    causal = fly.walk(square(512, 16, 16, 64, causal=True))
    assert list(np.unique(causal.kv_rows)) == [256, 512]
    gluon = Objects(folder, "gluon").walk(square(256, 16, 16, 128))
    assert list(gluon.stream[:9]) == [0, 2, 4, 6, 8, 10, 12, 14, 1]


def test_arguments(tmp_path: Path) -> None:
    gluon = Compiled(tmp_path, "gluon", 128, 64, 8, 512)
    block = gluon.kernarg(AT, 512, 512, 3, (1024, 1024))
    assert struct.unpack_from("<5Q", block) == (1, 2, 3, 5, 4)
    assert struct.unpack_from("<6i", block, 40) == (2**23, 128, 8192, 2**20, 128, 1024)
    assert struct.unpack_from("<i", gluon.kernarg(AT, 512, 512), 40) == (0,)
    fly = Compiled(tmp_path, "flydsl", 64, 16, 16)
    assert struct.unpack_from("<8i", fly.kernarg(AT, 300, 200), 12 * 48) == (
        *(300, 200, 1024, 1024, 64, 0, 0, 0),
    )
    hk = Compiled(tmp_path, "hipkittens", 128, 64, 8, 512)
    block = hk.kernarg(AT, 512, 512, 3, (1024, 2048))
    assert hk.symbol == "_Z10attend_kerILi128EEv12attn_globalsIXT_EE"
    assert struct.unpack_from("<5Q", block) == (1, 3, 1024, 64, 128)
    assert struct.unpack_from("<5Q", block, 48) == (2, 3, 2048, 8, 128)
    assert struct.unpack_from("<5Q", block, 4 * 48) == (5, 3, 64, 1, 1024)
