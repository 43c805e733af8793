"""Attention forward in tiles of 32 rows, studies: right, and without findings of checked mode."""

from __future__ import annotations

import pytest

from tests.support import studied_attention

RUN = """
import tempfile
from pathlib import Path

from amdattn.ops.attention.problem import AttentionProblem
from benchmarks.attention_tile_rows import DESIGNS, kernels, planned
from tests.support.studied_attention import DIM, Shape, hold

with tempfile.TemporaryDirectory() as folder:
    (kernel,) = kernels(Path(folder), {{"{name}": DESIGNS["{name}"]}}).values()

    def call(q, k, v, shape):
        problem = AttentionProblem(
            shape.batch, shape.rows, shape.keys, shape.heads, shape.heads_kv, DIM, DIM,
            dtype="bfloat16", num_splits=shape.parts, causal=shape.causal, return_lse=True,
        )
        return planned(kernel, problem).run(q, k, v)

    # Rows that fill no tile, one block of keys, an odd number of them, keys that fill none; scores
    # that outgrow their reference; sums that overflow and are done again. In parts, too.
    hold(call, (
        Shape(1, 77, 192), Shape(2, 401, 437, 2, causal=True), Shape(1, 256, 32),
        Shape(1, 384, 1000, of_q=8, parts=3), Shape(1, 100, 333, 2, 2, of_q=100), Shape(1, 5, 1),
        Shape(1, 130, 300, of_q=30, of_v=2.0**100, parts=2),
    ))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wide384", "wide256"])
def test_right_under_sixteen_schedules(name: str) -> None:
    studied_attention.run(RUN.format(name=name), "gfx942")
