"""Kernels for architectures other than the one that the tests run on, in processes of their own."""

from __future__ import annotations

import pytest

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.products import of_arch
from amdattn.device import manifest
from tests.support import shipped
from tests.support.fake_rocm import run
from tests.support.kernel_sweep import run_on

OTHERS = [name for name in ARCHITECTURES if name != shipped.props().arch]


@pytest.mark.parametrize("arch", OTHERS)
def test_some_kernels_of_every_operation(arch: str) -> None:
    """Against float64, and checked under two schedules of their waves without a finding."""
    found = run_on(arch, "--every=24", "--cases=1", "--checked", timeout=300)
    assert found["wrong"] == [] and found["device"] == of_arch(arch).name
    of = {row.name: row.op for row in manifest.kernels() if row.arch == arch}
    assert {"attn_fwd", "gemm_nt", "rms_norm", "merge_state"} <= {
        of[name] for name in found["launched"]
    }


CAREFUL = """
import amdattn, ml_dtypes, numpy as np
rng = np.random.default_rng(1)
q, k, v = (
    rng.standard_normal((1, rows, 2, columns), np.float32).astype(ml_dtypes.bfloat16)
    for rows, columns in ((70, 128), (65, 128), (65, 120))
)
v[0, 3, 0, 5] = np.inf  # for a second attempt
with amdattn.virtual.check() as found:
    amdattn.flash_attn_func(q, k, v)
print([finding.text for finding in found.errors], len(found.log.launches))
"""


@pytest.mark.parametrize("arch", OTHERS)
def test_fewer_columns_than_a_tile_are_stored_cleanly(arch: str) -> None:
    """And what is not finite: code at the kernel's end where the compiler places instructions."""
    status, lines, errors = run(CAREFUL, AMDATTN_DEVICE=f"virtual:{arch}")
    assert (status, lines) == (0, ["[] 1"]), errors


@pytest.mark.slow
@pytest.mark.parametrize("arch", OTHERS)
def test_every_kernel(arch: str) -> None:
    found = run_on(arch, timeout=7000)
    assert found["wrong"] == []
    own = {row.name for row in manifest.kernels() if row.arch == arch}
    assert own == set(found["launched"])
    assert found["ran"] > len(own)


@pytest.mark.slow
@pytest.mark.parametrize("arch", OTHERS)
def test_a_case_of_every_kernel_is_clean(arch: str) -> None:
    """In checked mode, under two schedules of its waves."""
    found = run_on(arch, "--cases=1", "--checked", timeout=7000)
    assert found["wrong"] == []
