"""docs/attention-bench.md from the JSON of a run, here a made-up one."""

from __future__ import annotations

from typing import Any

from build_scripts.bench_tables import render


def record(shape: str, peer: str, mode: str, milliseconds: float, refused: str = "") -> Any:
    row = {"origin": "modelled", "shape": shape, "peer": peer, "round_mode": mode}
    if refused:
        return row | {"refused": refused}
    return row | {
        "refused": "",
        "times": {"at_sustained_us": milliseconds * 1000},
        "tflops": {"at_sustained": 400 / milliseconds},
        "use": {"mfma": 0.5},
        "clocks": {"sustained_ghz": 1.2, "launch_us": 2.7},
        "sampled": {"check_error": -0.004},
    }


def test_page() -> None:
    records = [
        record("b1", "aiter", "rtne", 1.0),
        record("b1", "amdattn", "rtne", 2.0),
        record("b1", "amdattn", "rtz", 0, "rounds to nearest only"),
        record("b2", "aiter", "rtne", 2.0),
        record("b2", "amdattn", "rtne", 1.0),
    ]
    versions, device = {"model": "abc"}, {"name": "MI300X"}
    page = render({"records": records, "versions": versions, "device": device})
    assert "| shape, ms | amdattn rtne | aiter rtne |" in page
    assert "| b1 | 2.000 | 1.000 |" in page and "| b2 | 200 | 400 |" not in page
    assert "| b1 | 200 | 400 |" in page  # TFLOP/s
    assert "| b1 | 2.00 |" in page and "| geometric mean | 1.00 |" in page
    assert "- amdattn rtz: rounds to nearest only" in page
    assert "within 0.40%" in page and "none was measured" in page
