"""AITER's attention backward, as it ships it: right, and as long as the pages say.

AMDATTN_AITER_DIR names a checkout of https://github.com/ROCm/aiter; nothing of it is copied here.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

import amdattn
from amdattn.bench.kernels import Functions
from amdattn.ops.attention_backward.reference import Options, gradients, of_forward
from benchmarks.attention_backward_launches import AITER
from benchmarks.attention_backward_peers import of_aiter
from benchmarks.peers.aiter_backward import CodeObject
from tests.support.peers.peer_device import normal

DIRECTORY = os.environ.get("AMDATTN_AITER_DIR")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DIRECTORY, reason="AMDATTN_AITER_DIR names no aiter checkout"),
]
RMS = {"dq": 8e-3, "dk": 5e-3, "dv": 5e-3}  # dq may be summed in 16 bits


@pytest.fixture
def directory() -> Path:
    assert DIRECTORY is not None
    return Path(DIRECTORY)


@pytest.mark.parametrize("sums", [16, 32])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_gradients(directory: Path, head_dim: int, causal: bool, sums: int) -> None:
    kernel = CodeObject.of(directory, amdattn.device_props().arch, head_dim, causal, sums=sums)
    rng, seqlen = np.random.default_rng(1), 2 * kernel.keys
    shapes = ((1, seqlen, heads, head_dim) for heads in (2, 2, 1, 1))
    options = Options(causal=causal, top_left=True)
    inputs = of_forward(*(normal(rng, *shape) for shape in shapes), options)
    found, best = kernel.run(inputs, Functions()), gradients(inputs, options)
    for name, least in RMS.items():
        if name == "dq" and kernel.keys == 256 and sums == 16:
            continue  # in the order of its sums, which another launch of AITER's changes
        x = found[name].astype(np.float64)
        if name != "dq":  # of each head of q
            x = x.sum(2, keepdims=True)
        expected = getattr(best, name)
        assert np.sqrt(((x - expected) ** 2).mean() / (expected**2).mean()) < least, name


def test_rows_that_are_no_whole_blocks_are_refused(directory: Path) -> None:
    kernel = CodeObject.of(directory, amdattn.device_props().arch, 128, True)
    x = np.zeros((1, kernel.keys, 1, 128))
    inputs = of_forward(x, x, x, x, Options())
    with pytest.raises(ValueError, match=f"not one multiple of {2 * kernel.keys}"):
        kernel.run(inputs, Functions())


@pytest.mark.parametrize("sums", [16, 32])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_loops(directory: Path, head_dim: int, causal: bool, sums: int) -> None:
    """What launches are composed of."""
    arch = amdattn.device_props().arch
    found = of_aiter(directory, head_dim, causal, Functions(), sums=sums).loop
    known = AITER[sums, arch, head_dim, causal]
    assert found.kernel.removesuffix("_recompile") == known.kernel
    for field in ("keys", "clk", "limit", "outside"):
        assert getattr(found, field) == getattr(known, field), dataclasses.asdict(found)
