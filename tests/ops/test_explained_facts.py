"""What plans say of themselves is what they are."""

from __future__ import annotations

from typing import Any

import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.problem import GemmProblem
from tests.support.shipped import shipped


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "out_dtype=bfloat16 bias=False alpha=1 split_k=0 aligned=True"),
        (
            {"activation": "silu", "bias": True, "alpha": 0.5, "split_k": 2},
            "out_dtype=bfloat16 bias=True alpha=0.5 split_k=2 aligned=True activation=silu",
        ),
        (
            {"deterministic": False, "out_dtype": "float32", "aligned": False},
            "out_dtype=float32 bias=False alpha=1 split_k=0 aligned=False deterministic=False",
        ),
    ],
)
def test_the_problem_of_a_product(options: dict[str, Any], text: str) -> None:
    plan = amdattn.plan_gemm(4, 64, 512, device="MI300X", **options)
    assert plan.as_dict()["problem"] == f"gemm_nt bfloat16, m=4 n=64 k=512 {text}"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, ""),
        ({"window_size": (5, 9), "top_left": True}, " window_size=(5, 9) top_left=True"),
        ({"num_splits": 2, "return_lse": True}, " num_splits=2 return_lse=True"),
        ({"sinks": True, "gather": "kv"}, " gather=kv sinks=True"),
    ],
)
def test_the_problem_of_attention(options: dict[str, Any], text: str) -> None:
    plan = amdattn.plan_attention(1, 40, 70, 2, 1, 128, device="MI300X", **options)
    said = plan.as_dict()["problem"]
    begin = "attention bfloat16, batch=1 seqlen_q=40 seqlen_kv=70 num_heads_q=2 num_heads_kv=1"
    assert said.startswith(f"{begin} head_dim=128 head_dim_v=128 softmax_scale=0.0883883 ")
    assert sorted(said.split("causal=False")[1].split(" ")) == sorted(text.split(" "))


@pytest.mark.parametrize("parts", [1, 3])
def test_launches_and_workspace(parts: int) -> None:
    product = amdattn.plan_gemm(4, 64, 1024, device="MI300X", split_k=parts)
    attention = amdattn.plan_attention(
        1, 40, 700, 2, 1, 128, device="MI300X", num_splits=parts, gather="k"
    )
    for plan in (product, attention):
        facts = plan.as_dict()
        for i, launch in enumerate(plan.launches):
            suffix = f" {i}" if len(plan.launches) > 1 else ""
            assert facts[f"kernel{suffix}"] == launch.kernel.name
            x, y, z = launch.grid
            assert facts[f"grid{suffix}"] == f"{launch.grid} = {x * y * z} workgroups"
            assert f"sha256 {launch.kernel.sha256[:16]}" in facts[f"code object{suffix}"]
        _, _, regions = facts["workspace"].partition(": ")
        said = [tuple(region.split(" ")) for region in regions.split(", ") if region]
        assert said == [(region.name, str(region.nbytes)) for region in plan.workspace.regions]
        assert facts["workspace"].startswith(f"{plan.workspace.total_bytes} bytes")
        assert plan.explain().count("\n") == len(facts) - 1
    assert product.splits == parts and bool(product.workspace.regions) == (parts > 1)


def test_kernels_that_need_alignment_say_so() -> None:
    rows = [row for row in shipped(planning.GEMM) if row.accepts["pointer_align_bytes"] > 2]
    props = KNOWN_DEVICES["MI300X"]
    with pytest.raises(
        amdattn.UnsupportedProblem, match=r"aligned=False is not built \(have True\)"
    ):
        planning.plan_gemm(GemmProblem(4, 64, 512, aligned=False), props, rows)
    assert planning.plan_gemm(GemmProblem(4, 64, 512), props, rows).launches
