"""docs/studies/attention-bench-gfx950.md from rows, here made-up ones; and rows that are kept."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from amdattn.bench.shapes import PRESETS, Shape
from benchmarks import attention_rows
from benchmarks.attention_bench_gfx950 import render
from benchmarks.published_gfx950 import published_us

LOOPS = {
    mode: {
        "amdattn, model-like": {"default": 100.0, "slow-waits": 110.0},
        "aiter": {"default": 120.0, "slow-waits": 121.0},
    }
    for mode in ("rtne", "rtz")
}
FOUND = {"us": LOOPS, "clk": LOOPS}
GRID = [str(shape) for shape in PRESETS["hipkittens"]]
OPEN, CAUSAL = (str(shape) for shape in PRESETS["gluon"][:2])


def row(shape: str, peer: str, us: float, **more: Any) -> Any:
    counts = ("vector_slots", "lds_bytes", "l1_bytes", "l2_bytes", "hbm_bytes")
    return {
        **{"shape": shape, "peer": peer, "lds": "measured", "model": "abc", "refused": ""},
        **{"kernel": "k", "sha256": "0123456789abcdef"},
        **{"flops": 10**9, "times": {"at_sustained_us": us}, "launches": []},
        **{"clocks": {"sustained_ghz": 1.75, "launch_us": 2.6}, "sampled": {"check_error": -0.004}},
        "use": {"mfma": 0.5, "mfma_device": 0.25, "valu": 0.4, "lds": 0.3},
        "stalls": {"barrier": 0.2, "vector": 0.01},
        "energy": {
            "cycles": us * 1750,
            "matrix_flops": {"32x32x16": us * 1e9},
            "per_matrix_kflop": dict.fromkeys(counts, 0.0),
        },
        **more,
    }


def test_page() -> None:
    at_8192 = GRID[3]
    rows = [
        *(row(shape, "amdattn", 100.0) for shape in (*GRID[:4], OPEN)),
        row(CAUSAL, "amdattn", 50.0, flops=4 * 10**8),
        *(row(shape, "aiter", 110.0) for shape in GRID[:2]),
        row(GRID[2], "aiter", 150.0),
        row(at_8192, "amdattn", 50.0, lds="published"),
        row(at_8192, "triton", 200.0),
        row(at_8192, "aiter", 60.0, lds="published"),
        row(GRID[20], "aiter", 0.0, refused="head_dim=64"),
    ]
    page = render(rows, FOUND)
    assert "(its library abc)" in page and "{" not in page.replace("{lds}", "")
    # Least, against its bar, and mean: of 1.1, 1.1 and 1.5.
    assert "| aiter, LDS measured | 3 | 1.100 (**<** 1.2) | 1.220 | 1.100 (>= 1) | 1.220 |" in page
    assert "| 1.10 (slow-waits) |" in page and "| slow-waits | 110 | 121 (1.100) |" in page
    assert "| least |  | 1.10 (slow-waits) |" in page
    assert "| aiter, LDS published | 1 | 1.200 (>= 1.2) | 1.200 | 1.200 (>= 1) |" in page
    assert "| triton, LDS measured | 1 | 2.000 | 2.000 (>= 1.3) |" in page
    text = f"- aiter, LDS measured, cycles: 2 of 3 shapes below 1.2, {GRID[0]} with 1.100"
    assert text in page and "measured, time" not in page and "aiter, LDS published" in page
    # At 2714 - 12.42 x 25 MHz, 100 us of 1.75 GHz and 110.
    assert f"| {GRID[0]} | 0.073 | 2.40 | 14 | 10 | 0.080, 1.100 | - |" in page
    assert "Our objects: k (0123456789ab)." in page
    assert f"| {CAUSAL} | 25.0%, 80.0% | - | - |" in page
    assert f"- {OPEN}: 25.0% of the peak < 90%" in page
    assert f"- {CAUSAL}: 80.0% of the rate without a mask < 93%" in page
    assert f"| {GRID[2]} | 1.000 | 1.500 | - |" in page
    assert "- aiter, 1 rows: head_dim=64" in page
    assert f"| amdattn {at_8192} | 50% | 40% | 30% | 20% |" in page


def test_what_no_kernel_could_do() -> None:
    """A fifth of the matrix work is thrown away; of the rest the peak allows no more."""
    shape, other = GRID[3], GRID[2]
    busy = {"mfma": 0.8, "mfma_device": 0.8, "valu": 0.4, "lds": 0.3}
    energy = row(shape, "aiter", 1.0)["energy"] | {"matrix_flops": {"32x32x16": 1.25e9}}
    lds = {"lds": "published"}
    rows = [
        row(shape, "amdattn", 100.0),
        *(row(s, "amdattn", 50.0, **lds) for s in (shape, other)),
        row(shape, "aiter", 60.0, use=busy, energy=energy, **lds),
        row(other, "aiter", 55.0, use=busy | {"mfma_device": 1.25 * 0.9}, energy=energy, **lds),
    ]
    page = render(rows, FOUND)
    assert f"| {shape} | 80.0%, 64.0% | 1.562 | 76.8% | 1.200 | 76.8% |" in page
    assert f"| {other} | 112.5%, 90.0% | 1.111 | 108.0% | 1.100 | 99.0% |" in page
    assert "That is below 1.20 at 1 of 2 shapes" in page and "and at 1 of 2 " in page


def test_rows_of_two_models_are_told_and_ours_are_needed() -> None:
    page = render(
        [row(GRID[0], "amdattn", 1.0), row(GRID[0], "aiter", 1.0) | {"model": "xyz"}], FOUND
    )
    assert "(its library abc and xyz)" in page
    with pytest.raises(ValueError, match="rows of ours are needed"):
        render([row(GRID[0], "aiter", 1.0)], FOUND)


def test_published_rows_are_of_the_grid() -> None:
    us = published_us("aiter", GRID[3])
    assert us is not None and us == pytest.approx(6985, rel=1e-3)  # 1259.3 TFLOP/s
    assert published_us("aiter", GRID[20]) is None and published_us("hipkittens", GRID[20])
    assert published_us("triton", GRID[0]) is None and published_us("aiter", OPEN) is None
    assert sum(published_us("hipkittens", shape) is not None for shape in GRID) == 40


def test_rows_are_kept_and_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    in_full: list[str] = []

    class Outcome:
        class record:
            cycles = 5.0
            sampled: ClassVar[dict[str, float]] = {"check_error": 0.06}

            @staticmethod
            def as_dict() -> dict[str, str]:
                return {"shape": ran[-1]}

    def run_operation(kernel: Any, shape: Shape, functions: Any, method: str = "auto") -> Any:
        if method == "auto":
            ran.append(str(shape))
        else:
            assert shape.seqlen_kv <= 1024
            in_full.append(str(shape))
        return Outcome

    monkeypatch.setattr(attention_rows, "run_operation", run_operation)
    monkeypatch.setattr(attention_rows, "model_version", lambda: "abc")
    monkeypatch.setattr(attention_rows, "reading", contextlib.nullcontext)
    monkeypatch.setattr("sys.argv", ["rows", str(tmp_path), "--seqlen", "1024"])
    attention_rows.main()
    assert len(ran) == 8 and all(" s1024 " in shape for shape in ran) and in_full == ran
    attention_rows.main()
    assert len(ran) == 8
    monkeypatch.setattr("sys.argv", ["rows", str(tmp_path), "--seqlen", "1024", "--again"])
    attention_rows.main()
    assert len(ran) == 16
    found = attention_rows.read(tmp_path)
    assert [r["lds"] for r in found] == ["measured"] * 8 and found[0]["model"] == "abc"
    assert json.loads((tmp_path / "amdattn-measured.jsonl").read_text().splitlines()[0]) == found[0]
    ran.clear()
    attention_rows.run_ours_again(tmp_path)
    assert ran == [*GRID, *map(str, PRESETS["gluon"]), *GRID]
    with pytest.raises(ValueError, match="must be one of"):
        attention_rows.kernels(["cutlass"])
