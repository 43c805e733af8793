"""The eight-wave kernels of benchmarks/eight_waves: right, and without findings of checked mode."""

from __future__ import annotations

import pytest

from tests.support import studied_attention

RUN = """
from benchmarks.attention_eight_waves import DESIGNS, Attention
from tests.support.studied_attention import Shape, hold

run = Attention(DESIGNS["{name}"])
# Rows that fill no tile, one block, an odd number of them; scores that outgrow their reference, and
# sums that overflow before they are renewed.
hold(lambda q, k, v, shape: [run(q, k, v)], (
    Shape(1, 77, 192), Shape(2, 301, 448, 2), Shape(1, 256, 64), Shape(1, 256, 512, of_q=8),
    Shape(1, 100, 256, 2, 2, of_q=100),
))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clusters", "split", "follow", "two"])
def test_right_under_sixteen_schedules(name: str) -> None:
    studied_attention.run(RUN.format(name=name), "gfx950")
