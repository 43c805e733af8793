"""Plans of random arguments on every device: whole, or refused by an error that names a reason."""

from __future__ import annotations

import random

import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS
from amdattn.op.plan import Address, PerRun, Stride
from tests.support.problems import Call, attention_arguments, gemm_arguments

DEVICES = [*KNOWN_DEVICES, *KNOWN_PARTITIONS]
REFUSALS = (ValueError, TypeError, NotImplementedError)
NUMBER = 400


def calls(drawn: str) -> list[Call]:
    chance = random.Random(drawn)
    draw = {"attention": attention_arguments, "gemm": gemm_arguments}[drawn]
    return [{**draw(chance), "device": chance.choice(DEVICES)} for _ in range(NUMBER)]


@pytest.mark.parametrize("operation", ["attention", "gemm"])
def test_a_plan_is_whole_or_refused(operation: str) -> None:
    plan_of = getattr(amdattn, f"plan_{operation}")
    plans = refused = 0
    for call in calls(operation):
        try:
            plan = plan_of(**call)
        except REFUSALS as error:
            named = [name for name in call if name in str(error)]
            assert named, f"{call}: {error}"
            refused += 1
            continue
        plans += 1
        operands = set()
        for launch in plan.launches:
            fields = [name for name, *_ in launch.kernel.kernarg.fields]
            assert sorted(name for name, _ in launch.args) == sorted(fields)
            assert all(extent > 0 for extent in launch.grid), call
            for _, value in launch.args:
                assert isinstance(value, (int, float, Address, Stride, PerRun))
                if isinstance(value, Address):
                    operands.add(value.operand)
        assert {region.name for region in plan.workspace.regions} <= operands, call
        assert plan_of(**call).explain() == plan.explain()
    assert plans > NUMBER / 3 and refused > NUMBER / 20
