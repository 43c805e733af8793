"""AttentionProblem: facts, defaults and refusals."""

import dataclasses
import math

import pytest
from hypothesis import given, strategies as st

from amdattn.ops.attention.problem import AttentionProblem, attention_problem

SIZE = st.integers(1, 500)


@given(
    batch=SIZE, sq=SIZE, skv=SIZE, hkv=st.integers(1, 8), group=st.integers(1, 8), d=SIZE, dv=SIZE
)
def test_shapes_and_problem_agree(batch, sq, skv, hkv, group, d, dv):
    problem = AttentionProblem(batch, sq, skv, hkv * group, hkv, d, dv)
    for layout in ("bshd", "bhsd"):
        shapes = [problem.shape(name, layout) for name in ("q", "k", "v")]
        assert attention_problem(*shapes, layout) == problem
        assert problem.shape("o", layout)[:3] == shapes[0][:3]
        assert problem.shape("o", layout)[3] == dv


@given(scale=st.floats(-1e30, 1e30), d=SIZE)
def test_softmax_scale(scale, d):
    assert AttentionProblem(1, 1, 1, 1, 1, d).softmax_scale == 1 / math.sqrt(d)
    problem = AttentionProblem(1, 1, 1, 1, 1, d, softmax_scale=scale)
    assert problem.softmax_scale_log2 == pytest.approx(scale * 1.4426950408889634, rel=1e-15)


def test_frozen_and_hashable():
    problem = AttentionProblem(1, 2, 3, 4, 2, 128)
    assert problem.head_dim_v == 128
    assert {problem: 1}[AttentionProblem(1, 2, 3, 4, 2, 128, 128)] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.batch = 2


def test_flops():
    assert AttentionProblem(2, 3, 5, 7, 7, 11, 13).flops == 2 * 2 * 7 * 3 * 5 * (11 + 13)


@pytest.mark.parametrize("name", ["batch", "seqlen_q", "seqlen_kv", "num_heads_q", "head_dim"])
@pytest.mark.parametrize("value", [0, -1, 2**31])
def test_counts_out_of_range(name, value):
    facts = dict(batch=1, seqlen_q=1, seqlen_kv=1, num_heads_q=1, num_heads_kv=1, head_dim=1)
    with pytest.raises(ValueError, match=f"{name}={value}"):
        AttentionProblem(**{**facts, name: value})


def test_the_greatest_counts():
    """They are in range, as the least ones are."""
    most = 2**31 - 1
    problem = AttentionProblem(most, most, most, most, most, most, total_q=most, total_kv=most)
    assert dataclasses.astuple(problem)[:7] == (most,) * 7
    assert (problem.total_q, problem.total_kv) == (most, most)
    for name in ("total_q", "total_kv"):
        totals = {"total_q": 1, "total_kv": 1, name: most + 1}
        with pytest.raises(ValueError, match=f"{name}={most + 1} must be in 0..{most}"):
            AttentionProblem(1, 1, 1, 1, 1, 8, **totals)


@pytest.mark.parametrize("value", [1.0, "1", None])
def test_counts_that_are_no_integers(value):
    with pytest.raises(TypeError, match="seqlen_q="):
        AttentionProblem(1, value, 1, 1, 1, 1)


def test_an_array_without_a_last_axis_is_no_default():
    with pytest.raises(ValueError, match="head_dim_v=0"):
        attention_problem((1, 1, 1, 8), (1, 1, 1, 8), (1, 1, 1, 0), "bshd")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"top_left": 1}, TypeError, "top_left=1 must be a bool"),
        ({"sinks": None}, TypeError, "sinks=None must be a bool"),
        ({"total_q": 4}, ValueError, "total_q=4 and total_kv=0 must both be 0 or both not"),
        ({"total_q": -1, "total_kv": 3}, ValueError, "total_q=-1 must be in 0"),
        ({"total_q": 2.5, "total_kv": 3}, TypeError, "total_q=2.5 must be an int"),
        ({"window_size": (-2, 0)}, ValueError, "window_size="),
    ],
)
def test_malformed_options(options, error, text):
    with pytest.raises(error, match=text):
        AttentionProblem(1, 8, 8, 1, 1, 128, **options)


@given(batch=SIZE, total=SIZE, longest=SIZE, hkv=st.integers(1, 8), group=st.integers(1, 8))
def test_shapes_of_sequences_of_several_lengths(batch, total, longest, hkv, group):
    problem = attention_problem(
        *((total, hkv * group, 128), (total + 1, hkv, 128), (total + 1, hkv, 64)),
        "thd",
        batch=batch,
        seqlen_q=longest,
        seqlen_kv=longest + 2,
    )
    assert problem.varlen and problem.head_dim_v == 64
    assert (problem.batch, problem.total_q, problem.total_kv) == (batch, total, total + 1)
    assert (problem.seqlen_q, problem.seqlen_kv) == (longest, longest + 2)
    assert problem.shape("v", "thd") == (total + 1, hkv, 64)


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ([(1, 9, 2, 128)] * 3, "must have 3 dimensions, 'thd' is"),
        ([(0, 2, 128), (9, 2, 128), (9, 2, 128)], "total_q=0"),
        ([(9, 2, 128), (9, 2, 128), (8, 2, 128)], "v has seq=8 but k has seq=9"),
    ],
)
def test_malformed_shapes_of_several_lengths(shapes, text):
    with pytest.raises(ValueError, match=text):
        attention_problem(*shapes, "thd", batch=2, seqlen_q=9, seqlen_kv=9)


def test_flops_without_what_is_masked():
    square = AttentionProblem(1, 4, 4, 1, 1, 8, causal=True)
    assert square.flops == 2 * (4 * 5 // 2) * 16
    assert AttentionProblem(1, 2, 4, 1, 1, 8, causal=True).flops == 2 * (3 + 4) * 16
    assert AttentionProblem(1, 2, 4, 1, 1, 8, causal=True, top_left=True).flops == 2 * 3 * 16
    assert AttentionProblem(1, 4, 2, 1, 1, 8, causal=True).flops == 2 * 3 * 16
