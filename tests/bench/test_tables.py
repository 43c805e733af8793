"""docs/studies/attention-bench.md from the JSON of runs, here made-up ones."""

from __future__ import annotations

from typing import Any

import pytest

from amdattn.bench.shapes import PRESETS
from benchmarks.attention_bench import SECTIONS, command, render

LOOPS = {
    mode: {
        "amdattn, model-like": {"default": 100.0, "slow-waits": 110.0},
        "aiter": {"default": 120.0, "slow-waits": 121.0},
    }
    for mode in ("rtne", "rtz")
}
FOUND = {"us": LOOPS, "clk": LOOPS}
NINE = [str(shape) for shape in PRESETS["moonmath"]]
CAUSAL = str(PRESETS["causal"][0])


def record(shape: str, peer: str, mode: str, milliseconds: float, refused: str = "") -> Any:
    row = {
        "origin": "modelled",
        "shape": shape,
        "peer": peer,
        "round_mode": mode,
        "reading": "default",
    }
    if refused:
        return row | {"refused": refused}
    return row | {
        "refused": "",
        "times": {"at_sustained_us": milliseconds * 1000},
        "tflops": {"at_sustained": 400 / milliseconds},
        "use": {"mfma": 0.5, "mfma_device": 0.25},
        "clocks": {"sustained_ghz": 1.2, "launch_us": 2.7},
        "sampled": {"check_error": -0.004},
        "energy": {
            "joules": milliseconds / 2,
            "clock_ghz": 1.25,
            "matrix_flops": {"16x16x16": 1.0},
            "per_matrix_kflop": {
                name: milliseconds
                for name in ("vector_slots", "lds_bytes", "l1_bytes", "l2_bytes", "hbm_bytes")
            },
        },
    }


def document(records: Any, model: str = "abc") -> Any:
    return {"records": records, "versions": {"model": model}, "device": {"name": "MI300X"}}


def test_page() -> None:
    nine = [
        record(NINE[0], "moonmath", "rtne", 4.0),
        record(NINE[0], "aiter", "rtne", 1.0),
        record(NINE[0], "amdattn", "rtne", 2.0),
        record(NINE[0], "amdattn", "rtz", 0, "rounds to nearest only"),
        record(NINE[1], "aiter", "rtne", 2.0),
        record(NINE[1], "amdattn", "rtne", 1.0),
    ]
    other = [record(CAUSAL, "aiter", "rtz", 3.0), record(CAUSAL, "amdattn", "rtz", 2.0)]
    page = render([document(nine), document(other)], FOUND)
    assert "| shape, ms | amdattn rtne | aiter rtne | moonmath rtne |" in page
    assert f"| {NINE[0]} | 2.000 | 1.000 | 4.000 |" in page
    assert f"| {NINE[1]} | 400 | 200 | - |" in page  # TFLOP/s
    assert f"| {NINE[0]} | 0.500 | 2.000 |" in page and f"| {NINE[1]} | 2.000 | - |" in page
    assert "| geometric mean | 1.000 | 2.000 |" in page and "| least | 0.500 | 2.000 |" in page
    both = "1.200 | 1.100 (slow-waits)"
    assert f"| aiter rtne, model-like | {both} | {both} |" in page
    assert "| a peer / ours | us | least | clk | least |" in page
    assert page.index("## Estimated time") < page.index("## Cycles") < page.index("## Time")
    assert f"| {NINE[0]} | 1.00 (1.25) | 0.50 (1.25) | 2.00 (1.25) |" in page
    assert "| amdattn rtne | 16x16x16 | 1.5 |" in page
    assert f"| {CAUSAL} | 2.000 | 3.000 | 1.50 |" in page
    assert f"- {NINE[0]} amdattn rtz: rounds to nearest only" in page
    assert "aiter 0.40%" in page and "none\nwas measured" in page
    assert "7 of 7 operations were sampled" in page
    assert "| 50.0% (25.0%) |" in page and "do not run beside" not in page


def test_the_other_reading_has_tables_of_its_own() -> None:
    rows = [record(NINE[0], peer, "rtz", ms) for peer, ms in (("amdattn", 2.0), ("aiter", 3.0))]
    other = [r | {"reading": "trans-exclusive", "times": {"at_sustained_us": 8000.0}} for r in rows]
    page = render([document([*rows, *other])], FOUND)
    first, _, second = page.partition("## If transcendentals do not run beside MFMAs")
    assert f"| {NINE[0]} | 1.500 |" in first and f"| {NINE[0]} | 1.000 |" in second
    assert f"| {NINE[0]} | 8.000 | 8.000 |" in second


def test_short_launches_are_at_the_clock_of_the_estimate() -> None:
    rows = [record(CAUSAL, peer, "rtz", ms) for peer, ms in (("amdattn", 0.5), ("aiter", 0.75))]
    for r, us in zip(rows, (300.0, 600.0), strict=True):
        r["times"]["estimated_us"] = us
    assert f"| {CAUSAL} | 0.300 | 0.600 | 2.00 |" in render([document(rows)], FOUND)
    rows[1]["times"]["at_sustained_us"] = 1000.0
    assert f"| {CAUSAL} | 0.500 | 1.000 | 2.00 |" in render([document(rows)], FOUND)


def test_documents_of_two_models_are_not_mixed() -> None:
    one, two = (document([record(NINE[0], "aiter", "rtz", 1.0)], model) for model in ("a", "b"))
    with pytest.raises(ValueError, match=r"versions of the model \['a', 'b'\]"):
        render([one, two], FOUND)


def test_commands() -> None:
    words = command("moonmath", "A", "M")
    assert words[:2] == ["-m", "benchmarks.attention_peers"]
    assert words.count("--peer") == 2 and "moonmath=M" in words and words[-1] == "--json"
    for preset, _, rival in SECTIONS:
        assert preset in PRESETS
        assert command(preset, "A", "M").count("--peer") == 1
        assert any(word.startswith(rival) for word in command(preset, "A", "M"))
