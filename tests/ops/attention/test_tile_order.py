"""Workgroups that find their tiles, of every kernel: the bits of a grid for all tiles."""

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.ops.attention.ordering import order_of
from amdattn.ops.attention.planning import inverse
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention.select import ATTENTION
from tests.support.attention.masked import varlen

LENGTHS = ((30, 70), (0, 9), (140, 100), (66, 0), (1, 33))
KERNELS = sorted(
    row.name
    for row in manifest.kernels()
    if row.arch == "gfx942"
    and row.op == ATTENTION
    and "max_ordered_sequences" in row.accepts
    and row.accepts["max_ordered_sequences"]
)
DEFAULT = ("attn_fwd_bf16_d128_q128_rtne", "attn_fwd_fp16_d64_rtne")


def in_order(plan, lengths):
    """The same, with tiles in their order whether that is worth it or not."""
    p, forward = plan.problem, plan.forward
    order = order_of(p, forward.kernel, amdattn.device_props())
    arguments = order.arguments(inverse(order.heads))
    launches = [
        dataclasses.replace(
            launch,
            grid=(order.num_workgroups, 1, 1) if launch is forward else launch.grid,
            args=tuple((name, arguments.get(name, value)) for name, value in launch.args),
        )
        for launch in plan.launches
    ]
    regions = {
        "partial_o": forward.kernel.tile["q"] * forward.kernel.params["head_dim_v"] * 4,
        "partial_max_sum": forward.kernel.tile["q"] * 8,
    }
    for region in plan.workspace.regions:  # there is one for each part of every tile
        assert region.nbytes >= order.partials * order.heads * regions[region.name]
    return dataclasses.replace(plan, launches=tuple(launches))


@pytest.mark.parametrize("num_splits", [1, 2])
@pytest.mark.parametrize(
    "name",
    [n if n in DEFAULT else pytest.param(n, marks=pytest.mark.slow) for n in KERNELS],
)
def test_of_every_kernel(name, num_splits):
    (kernel,) = (row for row in manifest.kernels() if (row.name, row.arch) == (name, "gfx942"))
    rows, keys = zip(*LENGTHS, strict=True)
    softcap = 5.0 if kernel.accepts["softcaps"][1] else 0.0
    masking = {"causal": True, "softcap": softcap}
    dims = kernel.params["head_dim"], kernel.params["head_dim_v"]
    problem = AttentionProblem(
        *(len(rows), max(rows), max(keys), 2, 1, dims[0]),
        head_dim_v=dims[1], dtype=kernel.dtype, round_mode=kernel.accepts["round_mode"][0],
        num_splits=num_splits, total_q=sum(rows), total_kv=sum(keys), return_lse=True, **masking,
    )  # fmt: skip
    element = ml_dtypes.bfloat16 if kernel.dtype == "bfloat16" else np.float16
    rng = np.random.default_rng(7)
    q, k, v = (
        rng.standard_normal((sum(of), heads, columns)).astype(element)
        for of, heads, columns in ((rows, 2, dims[0]), (keys, 1, dims[0]), (keys, 1, dims[1]))
    )
    sums = [np.cumsum([0, *of]).astype(np.int32) for of in (rows, keys)]
    padded = planned_with(problem, amdattn.device_props(), name)
    results = [
        plan.run(q, k, v, cu_seqlens_q=sums[0], cu_seqlens_k=sums[1])
        for plan in (padded, in_order(padded, LENGTHS))
    ]
    for expected, found in zip(*results, strict=True):
        assert np.asarray(expected).tobytes() == np.asarray(found).tobytes()
    of_reference = varlen(q, k, v, *sums, **masking)
    atol = 0.03 if kernel.dtype == "bfloat16" else 0.004
    np.testing.assert_allclose(
        np.asarray(results[1][0], np.float64), of_reference[0], atol=atol, rtol=atol
    )
