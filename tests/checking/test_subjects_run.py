"""Subjects of `amdattn check` launch what they say, on inputs that are theirs, and give it out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from amdattn.checking.session import Check
from amdattn.checking.subjects import OfOperation
from amdattn.device import runtime
from amdattn.ops.attention import cases as attention
from amdattn.ops.gemm import cases as gemm
from amdattn.ops.gemm.problem import GemmProblem
from tests.support.attention import masked
from tests.support.shipped import shipped

KERNEL = "gemm_nt_bf16_m16n16k1"


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What a subject declares."""
    found: dict[str, Any] = {}

    def declare(self: Any, **given: Any) -> None:
        for role, arrays in given.items():
            found.setdefault(role, {}).update(arrays)

    monkeypatch.setattr(Check, "declare", declare)
    yield found


def session() -> Any:
    return object.__new__(Check)


@pytest.mark.parametrize("split", [1, 3])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_product(declared: dict[str, Any], split: int, deterministic: bool) -> None:
    problem = GemmProblem(5, 18, 840, split_k=split, deterministic=deterministic, bias=True)
    case = gemm.GemmCase(problem, kernel=KERNEL)
    subject = OfOperation(gemm.OPERATION, case, 2)
    out = subject.run(session())["out"]
    read = {name: x.numpy().astype(np.float64) for name, x in declared["read_only"].items()}
    assert sorted(read) == ["a", "b", "bias"]
    assert (read["a"].shape, read["b"].shape) == ((5, 840), (18, 840))
    expected = read["a"] @ read["b"].T + read["bias"]
    np.testing.assert_allclose(out.astype(np.float64), expected, rtol=2**-8, atol=1e-3)
    whole = {x for x in read["a"].ravel()}
    if deterministic:
        assert len(whole) > 100  # random numbers
    else:  # of which all sums are exact
        assert whole == set(range(-4, 5))
    assert declared["others"]["out"].shape == (5, 18)
    counters = declared.get("zero_at_end", {}).get("counters")
    if split == 1:
        assert counters is None
    else:
        assert counters.shape[0] % 8 == 0 and not counters.numpy().any()
        assert ("partials" in declared["zero_at_end"]) == (not deterministic)
    again = OfOperation(gemm.OPERATION, case, 2).run(session())["out"]
    other = OfOperation(gemm.OPERATION, case, 3).run(session())["out"]
    assert (again == out).all() and not (other == out).all()
    text = f" bias split_k={split}{'' if deterministic else ' any order'}"
    assert subject.title == f"gemm m5 n18 k840{text} with {KERNEL}"


def test_kernels_of_odd_lengths_have_a_case_of_their_own() -> None:
    rows = shipped("gemm_nt")
    for row in rows:
        cases = list(gemm.cases(row))
        odd = [case for case in cases if case.problem.k % 8 and not case.problem.groups]
        assert len(odd) == (row.accepts["k_multiple"] == 1)
        assert all(case.kernel == row.name for case in cases)
        for case in cases:
            assert case.problem.activation in row.accepts["activation"]


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((33, 70, 1, 4, 2, 64), {}),
        ((33, 70, 1, 1, 1, 64), {"head_dim_v": 40}),
        ((33, 70, 2, 1, 1, 64), {"causal": True, "layout": "bhsd"}),
        ((33, 33, 1, 1, 1, 64), {"window_size": (5, 2), "packed": True}),
        ((20, 30, 1, 2, 1, 64), {"sinks": True, "dtype": "float16"}),
    ],
)
@pytest.mark.parametrize("return_lse", [True, False])
def test_attention(
    declared: dict[str, Any], sizes: tuple[int, ...], options: dict[str, Any], return_lse: bool
) -> None:
    scale = 1 if options.get("packed") else 2
    case = attention.case(*sizes, return_lse=return_lse, scale_v=scale, **options)
    found = OfOperation(attention.OPERATION, case, 5).run(session())
    assert sorted(found) == ["lse", "out"][1 - return_lse :]
    read = {name: x.numpy().astype(np.float64) for name, x in declared["read_only"].items()}
    q, k, v = (read[name] for name in "qkv")
    for name, own in case.inputs(5).items():
        np.testing.assert_array_equal(read[name], own.astype(np.float64))
    plain = attention.case(*sizes, **options).inputs(5)["v"].astype(np.float64)
    np.testing.assert_array_equal(v, scale * plain)
    if case.layout == "bhsd":
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    masks = {n: x for n, x in options.items() if n in ("causal", "window_size")}
    if "sinks" in options:
        masks["sinks"] = read["sinks"]
    expected, lse = masked.attention(q, k, v, **masks)
    out = found["out"].astype(np.float64)
    if case.layout == "bhsd":
        out = out.transpose(0, 2, 1, 3)
    assert out.shape == expected.shape and out.shape[-1] == options.get("head_dim_v", 64)
    np.testing.assert_allclose(out, expected, atol=0.05, rtol=0.02)
    if return_lse:
        np.testing.assert_allclose(found["lse"], lse, rtol=1e-3, atol=1e-3)


def test_sequences_of_several_lengths(declared: dict[str, Any]) -> None:
    lengths = ((3, 7), (0, 9), (11, 0))
    case = attention.case(0, 0, head_dim=64, lengths=lengths, return_lse=True)
    subject = OfOperation(attention.OPERATION, case, 1)
    found = subject.run(session())
    assert found["out"].shape == (14, 1, 64) and found["lse"].shape == (1, 14)
    read = {name: x.numpy() for name, x in declared["read_only"].items()}
    assert read["cu_seqlens_q"].tolist() == [0, 3, 3, 14]
    assert read["cu_seqlens_k"].tolist() == [0, 7, 16, 16]
    q, k, v = (read[name][None].astype(np.float64) for name in "qkv")
    expected, _ = masked.attention(q[:, :3], k[:, :7], v[:, :7])
    np.testing.assert_allclose(found["out"][:3].astype(float), expected[0], atol=0.05, rtol=0.02)
    assert not found["out"][3:].any()
    assert subject.title.endswith("lengths ((3, 7), (0, 9), (11, 0))")


def test_a_named_kernel_is_taken() -> None:
    forward = shipped("attn_fwd")
    names = [row.name for row in forward if row.params["head_dim"] == 64]
    assert len(names) > 9
    props = runtime.device_props()
    from amdattn.ops.attention.plans import planned_with
    from amdattn.ops.attention.problem import AttentionProblem

    for name in names:
        mode, dtype = name.rsplit("_", 1)[1], "float16" if "fp16" in name else "bfloat16"
        options: dict[str, Any] = {"softcap": 2.0} if "softcap" in name else {}
        if "narrow" in name:
            options["window_size"] = (127, 0)
        problem = AttentionProblem(
            1, 30, 40, 8, 1, 64, dtype=dtype, round_mode=mode, num_splits=1, **options
        )
        assert planned_with(problem, props, name).launches[0].kernel.name == name
