"""Parts along KV that the last one of a tile to arrive merges: no launch of its own does."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.checking import schedules
from amdattn.checking.findings import ERROR, FindingLog
from amdattn.ops.attention import planning
from amdattn.ops.attention.kv_split import Choice, Split
from amdattn.ops.attention.work import WorkMap
from tests.support.attention.family import MEMBERS, Array, Call, Member, operands

PARTS = [
    dataclasses.replace(member, kernel=member.kernel or f"attn_fwd_{prefix}_d128_{member.mode}")
    for member in MEMBERS
    if (member.head_dim, member.head_dim_v) == (128, 128) and "q128" not in member.kernel
    for prefix in ("bf16" if member.dtype == "bfloat16" else "fp16",)
]
MAIN = next(member for member in PARTS if "q256_rtne" in member.kernel)
every_member = pytest.mark.parametrize("member", PARTS, ids=str)


def _cut(patch: pytest.MonkeyPatch, split: Split, in_launch: bool = True) -> None:
    choice = Choice(split, (Split(0, 1, 1.0), split), 1.0)
    patch.setattr(planning, "choose", lambda *_: choice)
    patch.setattr(planning, "merges_itself", lambda *_: in_launch)


def _merged(
    patch: pytest.MonkeyPatch, call: Call, split: Split, of: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """Right, and the bits that a launch of its own merges."""
    _cut(patch, split)
    plan = call.plan(*of)
    assert len(plan.launches) == 1 and plan.workspace.zero_bytes
    work = WorkMap.of(plan.problem, plan.forward)
    assert (work.parts, work.tiles - work.whole_tiles) == (split.parts, split.tiles)
    results = call.check(*of)
    _cut(patch, split, in_launch=False)
    assert len(call.plan(*of).launches) == 2
    for mine, its in zip(results, call.run(*of), strict=True):
        assert mine.tobytes() == its.tobytes()
    return results


@every_member
def test_the_last_part_merges(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 15 blocks: two long parts and a short one; rows that no tile has."""
    _merged(monkeypatch, Call(member), Split(1, 3, 1.0, 6), operands(member, 300, 470, (2, 1)))


@pytest.mark.parametrize(
    "split", [(8, 2, 9), (3, 8, 1), (16, 2, 0), (9, 5, 0), (16, 4, 3)], ids=str
)
def test_cuts(split: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole tiles before them, on every XCD; sinks, of which one outweighs all keys."""
    tiles, parts, blocks = split
    sinks = np.array([-3.0, 60.0, -np.inf, 2.5] * 2, np.float32)
    call = Call(MAIN, sinks=sinks)
    _merged(monkeypatch, call, Split(tiles, parts, 1.0, blocks), operands(MAIN, 270, 330, (8, 2)))


@pytest.mark.parametrize(
    "options", [{"causal": True}, {"window_size": (70, 9)}, {"causal": True, "top_left": True}]
)
def test_masks(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which some leave parts, or rows, without keys."""
    call = Call(MAIN, options)
    _merged(monkeypatch, call, Split(4, 4, 1.0), operands(MAIN, 400, 350, (2, 2)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_numbers_that_are_none(where: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one part, which is computed once more: its own bits are no other part's concern."""
    of = operands(MAIN, 260, 300, (2, 2))
    of["qkv".index(where)][0, 150, 1, 40] = value
    _merged(monkeypatch, Call(MAIN), Split(4, 3, 1.0, 4), of)


def test_sums_that_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of probabilities and V, in parts that are computed with smaller ones then."""
    q, k, v = operands(MAIN, 260, 300, (1, 1))
    v[:] = np.where(np.arange(128) % 2, 3e38, 1).astype(v.dtype)
    _merged(monkeypatch, Call(MAIN), Split(2, 3, 1.0, 4), (q, k, v))


def test_runs_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters are 0 again after each run, in a workspace and in memory of the stream."""
    _cut(monkeypatch, Split(4, 3, 1.0, 4))
    of = [amdattn.asarray(x) for x in operands(MAIN, 260, 300, (2, 2))]
    plan = Call(MAIN).plan(*of)
    workspace = plan.new_workspace()
    first = plan.run(*of, workspace=workspace)
    zeros = plan.workspace.zero_bytes
    assert zeros >= 4 * 3 * 4 * 8
    for given in (workspace, workspace, None, None):
        again = plan.run(*of, workspace=given)
        for one, other in zip(first, again, strict=True):
            assert one.numpy().tobytes() == other.numpy().tobytes()
        assert not workspace.numpy()[:zeros].any()


@dataclasses.dataclass
class _Subject:
    """A plan in checked mode."""

    call: Call
    of: tuple[Array, Array, Array]
    title: str = "parts"

    def run(self, check: Any) -> dict[str, Array]:
        plan = self.call.plan(*self.of)
        inputs = {name: amdattn.asarray(x) for name, x in zip("qkv", self.of, strict=True)}
        check.declare(read_only=inputs)
        workspace = plan.new_workspace()
        check.declare(zero_at_end={"counters": workspace[: plan.workspace.zero_bytes]})
        out, lse = plan.run(*inputs.values(), workspace=workspace)
        return {"out": out.numpy(), "lse": lse.numpy()}


@pytest.mark.parametrize("is_finite", [True, False])
def test_whoever_arrives_last(is_finite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No race, the same bits, and counters that are 0, in every schedule."""
    _cut(monkeypatch, Split(3, 3, 1.0, 2))
    of = operands(MAIN, 260, 170, (2, 2))
    if not is_finite:
        of[2][0, 100, 1, 5] = np.inf
    log = FindingLog()
    for _ in schedules.run(_Subject(Call(MAIN), of), schedules.schedules(6), log):
        pass
    assert log.num_launches == 6
    assert not [str(finding) for finding in log if finding.severity == ERROR]
