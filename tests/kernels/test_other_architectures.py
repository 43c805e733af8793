"""Kernels for architectures other than the one that the tests run on, in processes of their own."""

from __future__ import annotations

import pytest

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.products import of_arch
from amdattn.device import manifest
from tests.support import shipped
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
