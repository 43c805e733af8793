"""Operations of several launches, and what excludes a profile."""

import dataclasses
import json

import pytest

import amdattn
from amdattn.attention import plan_attention
from amdattn.bench import operation, report, shipped
from amdattn.bench.kernels import Functions, Operands
from amdattn.bench.record import MODELLED, read
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from amdattn.plan import Address
from amdattn.plan.workspace import WorkspaceLayout

SHAPE = Shape(1, 2, 1, 200, 200, 128)
REGIONS = WorkspaceLayout.of((("unused", 300), ("partial_lse", 4 * 2 * 200)))


@pytest.fixture
def two_launches(monkeypatch):
    """A plan of the attention kernel twice; the second one writes to a region of the workspace."""

    def plan(*sizes, **options):
        one = plan_attention(*sizes, **options)
        (first,) = one.launches
        arguments = tuple({**dict(first.args), "lse": Address("partial_lse")}.items())
        second = dataclasses.replace(first, args=arguments)
        return dataclasses.replace(one, launches=(first, second), workspace=REGIONS)

    monkeypatch.setattr(shipped, "plan_attention", plan)
    return Shipped("rtne")


def run(kernel, **options):
    return operation.run_operation(kernel, SHAPE, Functions(), **options)


def test_one_record_of_all_launches(two_launches, tmp_path):
    told = []
    outcome = run(two_launches, advance=lambda *what: told.append(what))
    record = outcome.record
    first, second = record.launches
    assert record.origin == MODELLED and record.cycles == first["cycles"] + second["cycles"]
    assert 0 < second["cycles"] < first["cycles"]  # its K and V are in the L2
    floor = record.clocks["launch_us"]
    for time in ("at_peak_us", "at_sustained_us"):
        parts = first["times"][time] + second["times"][time]
        assert getattr(record.times, time) == pytest.approx(parts + floor)
    assert record.workgroups == first["workgroups"] + second["workgroups"] == 8
    assert record.bytes["l1"] == first["bytes"]["l1"] + second["bytes"]["l1"]
    for name in ("mfma", "valu", "lds"):
        shares = sorted((first["use"][name], second["use"][name]))
        assert shares[0] <= record.use[name] <= shares[1]
    assert record.kernel.count("attn_fwd") == 2 and " + " in record.kernel
    assert record.sha256 == amdattn.kernels()[0].sha256  # of one code object
    assert told[-1][1:] == (1, 1)

    document = {"schema": 1, "records": [record.as_dict()]}
    file = tmp_path / "a.json"
    file.write_text(json.dumps(document))
    assert read(file)[1][0].launches == record.launches
    assert any("2 launches, with 2.7 us between them" in line for line in report.notes([record]))


def test_the_first_launch_is_as_alone(two_launches):
    alone = operation.run_attention(_Single(), SHAPE, Functions(), method="full").record
    assert alone.cycles == run(two_launches).record.launches[0]["cycles"]
    assert alone.launches == []


class _Single(Shipped):
    """With the real plan."""

    def __init__(self):
        super().__init__("rtne")

    def _plan(self, shape):
        two = super()._plan(shape)
        return dataclasses.replace(two, launches=two.launches[:1], workspace=WorkspaceLayout())


def test_workspace(two_launches):
    with Operands(SHAPE) as operands:
        first, second = two_launches.launches(SHAPE, operands)
        address = operands.workspace(REGIONS.total_bytes) + REGIONS["partial_lse"].offset
        assert address.to_bytes(8, "little") in second.kernarg
        assert address.to_bytes(8, "little") not in first.kernarg


def test_several_launches_are_not_sampled(two_launches):
    record = run(two_launches, method="sampled").record
    assert record.refused == "2 launches cannot be sampled; simulate in full"
    with pytest.raises(ValueError, match="sampling='some'"):
        run(two_launches, method="some")


def test_measured(two_launches, monkeypatch):
    monkeypatch.setattr(operation, "is_virtual", lambda: False)
    record = run(two_launches).record
    assert record.origin == "measured" and record.workgroups == 8
    assert 0 < record.times.low_us <= record.times.median_us <= record.times.high_us


# -- one watcher at a time -------------------------------------------------------------------------


def test_checks_and_profiles_exclude_each_other():
    check, profile = amdattn.virtual.check, amdattn.virtual.profile
    q = amdattn.empty((1, 16, 1, 128))
    for outer, inner, running in (
        (check, profile, "a check"),
        (profile, check, "a profile"),
        (profile, profile, "a profile"),
        (check, check, "a check"),
    ):
        with outer(), pytest.raises(RuntimeError, match=f"{running} is running already"), inner():
            pass
    with profile() as found:  # neither is left behind by the refusals
        amdattn.flash_attn_func(*[amdattn.asarray(q.numpy())] * 3)
    assert len(found.launches) == 1
    with check() as checked:
        amdattn.flash_attn_func(*[amdattn.asarray(q.numpy())] * 3)
    assert len(checked.launches) == 1
