"""What calls cost on a device that executes nothing: benchmarks/jax_overhead.py, with its bars."""

from __future__ import annotations

import statistics
import subprocess
import sys

import pytest

from benchmarks.jax_overhead import measured


@pytest.mark.slow  # of a machine that does nothing else
def test_overhead() -> None:
    found = measured()
    base = found["jitted, nothing"]
    beyond = [x - y for x, y in zip(found["jitted, flash_attn_func"], base, strict=True)]
    assert statistics.median(beyond) <= 5
    assert statistics.median(found["flash_attn_func"]) <= 25
    assert statistics.median(found["dot_product_attention"]) <= 25


@pytest.mark.slow
def test_import() -> None:
    code = """
import time, jax, jax.numpy
begin = time.process_time()
import amdattn.jax
print(time.process_time() - begin)
"""
    seconds = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(7)
    ]
    assert statistics.median(seconds) < 0.1
