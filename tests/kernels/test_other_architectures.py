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


def test_tiles_of_128_rows_where_v_goes_straight_to_lds() -> None:
    """One tile of matrix instructions a wave, whose loop has an order of its own."""
    found = run_on("gfx950", "--checked", "--names=attn_fwd_*_q128_*", timeout=300)
    assert found["wrong"] == []
    own = {f"attn_fwd_{dtype}_d{d}_q128_rtne" for dtype in ("bf16", "fp16") for d in (64, 128)}
    assert own <= set(found["launched"])


SAME_BITS = """
import amdattn, ml_dtypes, numpy as np
from amdattn.device import manifest
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem
rng = np.random.default_rng(3)
sizes = [(1, 1), (63, 64), (65, 63), (127, 129), (129, 127), (128, 192), (300, 257), (31, 1000)]
masks = [{}, {"causal": True}, {"window_size": (70, 3)}, {"num_splits": 3}]
different = []
for d in (64, 128):
    for rows, keys in sizes:
        q, k, v = (
            rng.standard_normal((1, n, 1, d), np.float32).astype(ml_dtypes.bfloat16)
            for n in (rows, keys, keys)
        )
        for mask in masks:
            problem = AttentionProblem(1, rows, keys, 1, 1, head_dim=d, head_dim_v=d,
                                       dtype="bfloat16", **{"num_splits": 1, **mask})
            names = [f"attn_fwd_bf16_d{d}_{q}_rtne" for q in ("q128", "q256")]
            few, many = (
                planned_with(problem, amdattn.device_props(), name).run(q, k, v).view(np.uint16)
                for name in names
            )
            if not np.array_equal(few, many):
                different.append((d, rows, keys, mask))
print(different)
"""


def test_tiles_of_128_and_256_rows_compute_the_same_bits() -> None:
    status, lines, errors = run(SAME_BITS, AMDATTN_DEVICE="virtual:gfx950")
    assert (status, lines) == (0, ["[]"]), errors


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
