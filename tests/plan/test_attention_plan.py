"""Plans: the right kernel, every tile once, the arithmetic of the explanation. No device."""

import dataclasses
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

import amdattn
from amdattn import manifest
from amdattn.device import KNOWN_DEVICES, DeviceProps
from amdattn.plan import Address, Stride
from amdattn.plan.attention import plan_attention, workgroups_per_cu
from amdattn.problem import AttentionProblem

MI300X = KNOWN_DEVICES["MI300X"]
ROWS = manifest.kernels()

PROBLEMS = st.builds(
    lambda batch, sq, skv, hkv, group: AttentionProblem(batch, sq, skv, hkv * group, hkv, 128),
    st.integers(1, 300),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.integers(1, 16),
    st.integers(1, 16),
)


@given(problem=PROBLEMS)
def test_every_query_row_is_covered_once(problem):
    (launch,) = plan_attention(problem, MI300X, ROWS).launches
    heads, tiles, batch = launch.grid
    assert (heads, batch) == (problem.num_heads_q, problem.batch)
    q_tile = launch.kernel.q_tile
    assert (tiles - 1) * q_tile < problem.seqlen_q <= tiles * q_tile


@given(problem=PROBLEMS)
def test_planning_is_deterministic_and_hashable(problem):
    one, other = (plan_attention(problem, MI300X, ROWS) for _ in range(2))
    assert one == other and hash(one) == hash(other) and one.explain() == other.explain()
    changed = plan_attention(
        dataclasses.replace(problem, seqlen_kv=problem.seqlen_kv + 1), MI300X, ROWS
    )
    assert changed != one


@given(problem=PROBLEMS)
def test_arguments_name_every_kernarg_field(problem):
    (launch,) = plan_attention(problem, MI300X, ROWS).launches
    args = dict(launch.args)
    assert set(args) == {name for name, *_ in launch.kernel.kernarg.fields}
    assert args["lse"] == Address("lse") and args["k_stride_seq"] == Stride("k", "seq")
    assert args["seqlen_kv"] == problem.seqlen_kv


@settings(max_examples=30)
@given(problem=PROBLEMS, num_cus=st.integers(1, 400))
def test_rounds_of_the_explanation(problem, num_cus):
    props = dataclasses.replace(MI300X, num_cus=num_cus)
    plan = plan_attention(problem, props, ROWS)
    (launch,) = plan.launches
    per_cu, _ = workgroups_per_cu(launch.kernel, props)
    text = dict(plan.reasons)["rounds"]
    rounds = -(-launch.num_workgroups // (per_cu * num_cus))
    assert f"ceil({launch.num_workgroups} / ({per_cu} x {num_cus} CUs)) = {rounds};" in text


def test_workgroups_per_cu():
    """LDS and registers both limit; the figures are those of the manifest row."""
    kernel = ROWS[0]
    few_registers = dataclasses.replace(kernel, vgpr=128, agpr=0, lds_bytes=16384)
    assert workgroups_per_cu(few_registers, MI300X)[0] == 4
    assert workgroups_per_cu(dataclasses.replace(few_registers, vgpr=65), MI300X)[0] == 4
    assert workgroups_per_cu(dataclasses.replace(few_registers, lds_bytes=40000), MI300X)[0] == 1
    # 4 waves, one a SIMD: 512 // (128 + 128) = 2 waves a SIMD.
    assert workgroups_per_cu(dataclasses.replace(few_registers, agpr=128), MI300X)[0] == 2


def test_explanation_of_a_real_shape():
    text = amdattn.explain(2, 4096, 4096, 32, 8, 128, device="MI300X")
    assert "batch=2 seqlen_q=4096 seqlen_kv=4096 num_heads_q=32 num_heads_kv=8" in text
    assert "(32, 32, 2) = 2048 workgroups" in text
    assert "AMD Instinct MI300X (gfx942), 304 CUs" in text
    assert ROWS[0].sha256[:16] in text


@pytest.mark.parametrize(
    ("options", "nearest"),
    [
        ({"causal": True}, {"causal": False}),
        ({"head_dim": 64}, {"head_dim": 128, "head_dim_v": 128}),
        ({"dtype": "float16"}, {"dtype": "bfloat16"}),
        ({"batch": 65536}, {"batch": "1..65535"}),
        ({"softcap": 1.0, "window_size": (0, 0)}, {"softcap": 0.0, "window_size": (-1, -1)}),
    ],
)
def test_supports_names_the_nearest(options, nearest):
    facts = dict(batch=1, seqlen_q=8, seqlen_kv=8, num_heads_q=2, num_heads_kv=2, head_dim=128)
    facts.update(options)
    answer = amdattn.supports(**facts, device="MI300X")
    assert not answer and answer.nearest == nearest
    for name in options:
        assert name in answer.reason
    with pytest.raises(amdattn.UnsupportedProblem) as caught:
        amdattn.plan_attention(**facts, device="MI300X")
    assert str(caught.value) == answer.reason


def test_supports_what_is_built():
    answer = amdattn.supports(1, 8, 8, 2, 1, 128, device="MI325X")
    assert answer and answer.ok and ROWS[0].name in answer.reason


def test_other_architectures():
    props = DeviceProps("gfx90a", "AMD Instinct MI250X", 104, 1, 65536, 2**36)
    assert "gfx90a" in amdattn.supports(1, 8, 8, 2, 1, 128, device=props).reason
    with pytest.raises(amdattn.UnsupportedDeviceError, match="No fallback"):
        amdattn.plan_attention(1, 8, 8, 2, 1, 128, device=props)


@pytest.mark.parametrize("device", ["MI100", None, 0])
def test_unknown_devices(device):
    with pytest.raises(ValueError, match="MI300X, MI325X, MI300A"):
        amdattn.plan_attention(1, 8, 8, 2, 1, 128, device=device)


def test_planning_never_reaches_the_runtime():
    code = (
        "import sys, amdattn.plan.attention; "
        "assert not {'amdattn.runtime', 'hip', 'rocm', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
