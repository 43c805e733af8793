"""Operations of several launches, and what excludes a profile."""

import json

import pytest

import amdattn
from amdattn.bench import operation, report
from amdattn.bench.kernels import Functions, Operands
from amdattn.bench.record import MODELLED, SCHEMA, read
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped

SHAPE = Shape(1, 2, 1, 200, 200, 128)


@pytest.fixture
def two_launches():
    """Every tile in two parts, and a launch that merges them."""
    return Shipped("rtne", num_splits=2, q_tile=384)


def run(kernel, **options):
    return operation.run_operation(kernel, SHAPE, Functions(), **options)


def test_one_record_of_all_launches(two_launches, tmp_path):
    told = []
    outcome = run(two_launches, advance=lambda *what: told.append(what))
    record = outcome.record
    first, second = record.launches
    assert record.origin == MODELLED and record.cycles == first["cycles"] + second["cycles"]
    assert 0 < second["cycles"] < first["cycles"]
    floor = record.clocks["launch_us"]
    for time in ("at_peak_us", "at_sustained_us"):
        parts = first["times"][time] + second["times"][time]
        assert getattr(record.times, time) == pytest.approx(parts + floor)
    assert record.workgroups == first["workgroups"] + second["workgroups"]
    assert first["workgroups"] == 4  # of two heads
    assert record.bytes["l1"] == first["bytes"]["l1"] + second["bytes"]["l1"]
    for name in ("mfma", "valu", "lds"):
        shares = sorted((first["use"][name], second["use"][name]))
        assert shares[0] <= record.use[name] <= shares[1]
    assert "attn_fwd" in record.kernel and "attn_merge" in record.kernel
    hashes = {kernel.sha256 for kernel in amdattn.kernels()}
    assert set(record.sha256.split(" + ")) <= hashes
    assert told[-1][1] == told[-1][2]

    document = {"schema": SCHEMA, "records": [record.as_dict()]}
    file = tmp_path / "a.json"
    file.write_text(json.dumps(document))
    assert read(file)[1][0].launches == record.launches
    assert any("time includes 2.7 us between them" in line for line in report.notes([record]))


def test_one_launch_has_no_parts():
    record = run(Shipped("rtne", num_splits=1)).record
    assert record.launches == [] and "merge" not in record.kernel


def test_workspace(two_launches):
    with Operands(SHAPE) as operands:
        first, second = two_launches.launches(SHAPE, operands)
        address = operands.addresses["workspace"].to_bytes(8, "little")
        assert address in first.kernarg and address in second.kernarg
        same = operands.workspace(8)
        assert same == operands.addresses["workspace"]
        assert operands.workspace(2**28) != same  # too small before


def test_what_cannot_be_sampled_says_so(two_launches):
    record = run(two_launches, method="sampled").record
    assert record.refused.endswith("too few rows of K and V to sample; simulate in full")
    with pytest.raises(ValueError, match="sampling='some'"):
        run(two_launches, method="some")


def test_measured(two_launches, monkeypatch):
    monkeypatch.setattr(operation, "is_virtual", lambda: False)
    record = run(two_launches).record
    assert record.origin == "measured" and record.workgroups > 4
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
