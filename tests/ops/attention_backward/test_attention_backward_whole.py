"""Blocks that are not split where others are, and which sequence begins first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.checking.findings import ERROR, FindingLog
from amdattn.checking.schedules import run, schedules
from amdattn.checking.subjects import OfOperation
from amdattn.device import runtime
from amdattn.op.comparison import judge
from amdattn.ops.attention_backward import planning, plans
from amdattn.ops.attention_backward.cases import (
    OPERATION,
    BackwardCase,
    case,
    expected as expected_of,
)
from amdattn.ops.attention_backward.kernels import BACKWARD, SUM
from amdattn.ops.attention_backward.splitting import Splits
from tests.support.backward.calls import normal

MIXES = (
    ((40, 90), (3, 0), (0, 9), (17, 5)),
    ((0, 3), (5, 300), (40, 40), (33, 20), (40, 1)),
    ((20, 7),) * 3 + ((65, 30),) + ((0, 0),) * 4 + ((21, 60),),
)


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What every plan has of them, until the end of the test."""

    def have(heads: int, rows: int, **whole: int) -> None:
        monkeypatch.setattr(planning, "best_splits", lambda *_: Splits(heads, rows, **whole))
        plans.planned.cache_clear()

    yield have
    plans.planned.cache_clear()


def findings(one: BackwardCase) -> list[str]:
    """Of checked mode, in schedules of all kinds."""
    log = FindingLog()
    for _ in run(OfOperation(OPERATION, one, 2), schedules(4), log):
        pass
    return [finding.kind for finding in log if finding.severity == ERROR]


def run_with_rows_behind(one: BackwardCase) -> None:
    """Right, and rows of no sequence stay."""
    inputs, p = one.inputs(3), one.problem.forward
    longer = [
        np.concatenate([inputs[name], inputs[name][:7]]) for name in ("dout", "q", "k", "v", "o")
    ]
    lse = np.concatenate([inputs["lse"], inputs["lse"][:, :7]], axis=1)
    dtype = one.problem.element.numpy()
    given = {n: np.full(longer[of].shape, 7, dtype) for n, of in (("dq", 1), ("dk", 2), ("dv", 3))}
    found = amdattn.flash_attn_varlen_backward(
        *(*longer, lse, inputs["cu_seqlens_q"], inputs["cu_seqlens_kv"], p.seqlen_q, p.seqlen_kv),
        **{"causal": p.causal, "deterministic": one.problem.deterministic},
        **{"out_dtype": one.problem.out_dtype, **given},
    )
    for name, must in expected_of(one, inputs).items():
        x = found[("dq", "dk", "dv").index(name)]
        assert (x[-7:].astype(np.float32) == 7).all()
        assert judge(x[:-7], must.values, must.tolerance, 0.0), name


@pytest.mark.parametrize("of", [(1, 2, 20), (2, 1, 39), (2, 3, 16), (2, 2, 0), (2, 2, 65)], ids=str)
@pytest.mark.parametrize("lengths", MIXES, ids=str)
def test_short_sequences_are_not_split(splits: Any, lengths: Any, of: tuple[int, ...]) -> None:
    """Nor summed; those of no rows have gradients of 0."""
    splits(*of[:2], whole_rows=of[2])
    heads = {"num_heads_q": 4, "num_heads_kv": 2}
    for options in (
        {"causal": True, "head_dim": 128},
        {"deterministic": True, "out_dtype": "float32", "head_dim": 64},
        {"dtype": "float16", "head_dim": 192, "head_dim_v": 128},
    ):
        run_with_rows_behind(case(lengths=lengths, **{**heads, **options}))


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("whole", [1, 5, 8, 9, 13])
def test_the_first_blocks_are_not_split(splits: Any, whole: int, deterministic: bool) -> None:
    """They write results themselves, the others are summed."""
    splits(2, 2, whole_blocks=whole)
    of: dict[str, Any] = {"more": {"deterministic": deterministic}, "batch": 2}
    normal(40, 800, (4, 2), (128, 128), **of).check()  # 4 blocks of 4 heads, or 5
    normal(40, 300, (20, 10), dtype="float16", **of).check()  # 2 of 20, 8 at once
    of["more"] = {**of["more"], "out_dtype": "float32"}
    normal(37, 900, (4, 2), (72, 40), softcap=2.0, **of).check()


@pytest.mark.parametrize("deterministic", [False, True])
def test_checked_with_blocks_that_are_not_split(splits: Any, deterministic: bool) -> None:
    splits(1, 2, whole_blocks=3)
    sizes = {"seqlen_q": 40, "seqlen_kv": 500, "batch": 2}
    one = case(**sizes, num_heads_q=2, deterministic=deterministic)
    assert findings(one) == []


@pytest.mark.parametrize("deterministic", [False, True])
def test_checked(splits: Any, deterministic: bool) -> None:
    """No finding in any schedule: what is read of splits is what was written."""
    splits(2, 2, whole_rows=20)
    for lengths in MIXES:
        one = case(num_heads_q=2, lengths=lengths, causal=True, deterministic=deterministic)
        assert findings(one) == []


@pytest.mark.parametrize("lengths", [(5, 9, 9, 0, 30, 9), (4,) * 5, (*range(300), 7, *range(300))])
def test_the_longest_first(lengths: tuple[int, ...]) -> None:
    """Of as many rows the first one."""
    rows, longest = sum(lengths), max(lengths)
    plan = amdattn.plan_attention_backward(
        *(len(lengths), longest, longest, 1, 1, 64),
        **{"total_q": rows, "total_kv": rows},
        device=amdattn.device_props(),
    )
    q = np.random.default_rng(1).standard_normal((rows, 1, 64), np.float32)
    q = amdattn.asarray(q.astype(plan.problem.element.numpy()))
    lse = amdattn.asarray(np.zeros((1, rows), np.float32))
    sums = amdattn.asarray(np.cumsum([0, *lengths]).astype(np.int32))
    workspace = plan.new_workspace()
    plan.run(*(q, q, q, q, q, lse), cu_seqlens_q=sums, cu_seqlens_k=sums, workspace=workspace)
    (at,) = (one.offset for one in plan.workspace.regions if one.name == "order")
    order = np.empty(len(lengths), np.int32)
    runtime.get().download(order.ctypes.data, workspace.address + at, order.nbytes, 0)
    np.testing.assert_array_equal(order, np.argsort(-np.asarray(lengths), kind="stable"))


# -- plans -----------------------------------------------------------------------------------------


def main_of(batch: int, longest: int, total: int, **options: Any) -> dict[str, Any]:
    made = amdattn.plan_attention_backward(
        *(batch, longest, longest, 8, 8, 128),
        **{"total_q": total, "total_kv": total, "device": "MI300X", **options},
    )
    return dict(next(one for one in made.launches if one.kernel.op == BACKWARD).args)


def test_plans() -> None:
    """Only of several lengths, and not with a number of splits: bits do not depend on others."""
    args = main_of(16, 1024, 1024 + 15 * 64)
    assert args["order"] != 0 and args["whole_rows"] == 341 and args["row_splits"] > 1
    assert main_of(16, 1024, 1024 + 15 * 64, num_splits=3)["whole_rows"] == -1
    assert main_of(4, 1024, 4096)["whole_rows"] == -1
    for batch in (1, 1025):
        assert main_of(batch, 1024, 1024)["order"] == 0
    dense = amdattn.plan_attention_backward(4, 1024, 1024, 8, 8, 128, device="MI300X")
    for launch in dense.launches:
        args = dict(launch.args)
        assert not args.get("order") and args.get("whole_rows", -1) == -1


def test_what_launches_write() -> None:
    """Blocks that are not split write the results themselves."""
    made = amdattn.plan_attention_backward(
        *(16, 1024, 1024, 8, 8, 128), total_q=1984, total_kv=1984, device="MI300X"
    )
    ops = {launch.kernel.op: launch for launch in made.launches}
    assert {"dk", "dv", "dk_sums", "dv_sums"} <= ops[BACKWARD].writes
    assert ops[SUM].writes == {"dk", "dv"}


@pytest.mark.parametrize(
    ("sizes", "whole", "count"),
    [
        ((8, 10240, 10240, 64, 8, 128), 3344, 2),
        ((16, 16384, 16384, 64, 8, 128), 10944, 2),
        ((1, 1024, 1024, 64, 8, 128), 0, 6),
        ((1, 3072, 3072, 16, 16, 128), 0, 1),
    ],
    ids=str,
)
def test_the_last_round_alone_is_split(sizes: tuple[int, ...], whole: int, count: int) -> None:
    made = amdattn.plan_attention_backward(*sizes, device="MI300X")
    ops = {launch.kernel.op: launch for launch in made.launches}
    args = dict(ops[BACKWARD].args)
    of_block = args["head_splits"] * args["row_splits"]
    assert args["whole_blocks"] == whole and of_block >= count, made.reasons
    all_blocks = args["heads"] * args["of_head"]
    assert ops[BACKWARD].grid[0] == whole + (all_blocks - whole) * of_block
    if whole:
        assert dict(ops[SUM].args)["first_row"] == whole // (8 * args["of_head"]) * 8 * sizes[2]
        assert {"dk", "dv", "dk_sums", "dv_sums"} <= ops[BACKWARD].writes
