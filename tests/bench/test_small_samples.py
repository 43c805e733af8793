"""Samples of operations that a moment simulates in full: every figure, not only the cycles."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from amdattn.bench import family
from amdattn.bench.family import FamilySampler
from amdattn.bench.item_cost import Cost
from amdattn.bench.kernels import Functions
from amdattn.bench.modelled import Modelled
from amdattn.bench.replay import Speed
from amdattn.bench.shapes import Shape
from amdattn.bench.shipped import Shipped
from amdattn.device.profiling import LaunchProfile, WorkgroupTime
from benchmarks import sampling_accuracy as accuracy
from benchmarks.peers.scaled_keys import ScaledKeys
from benchmarks.peers.speed import NotLinear, Simulation, fit

LARGEST = {64: 512, 128: 384, 192: 256}  # tiles, by head_dim
ONE_ROUND = Shape(1, 8, 8, 384, 1000, 64)  # a workgroup on each XCD
CAUSAL = Shape(1, 8, 8, 2500, 2500, 64, causal=True)


def models(shape: Shape, method: str, num_splits: int = 1, events: int = 0) -> list[Modelled]:
    kernel = Shipped("rtz", num_splits, LARGEST[shape.head_dim])
    return FamilySampler(kernel, shape, Functions(), method=method, trace_events=events).model()


def test_one_workgroup_is_a_line_through_two_others() -> None:
    (sampled,), (full,) = (models(ONE_ROUND, method) for method in ("sampled", "full"))
    # No line to the clk: references are looked at after 256 keys, and after every 1024.
    assert sampled.cycles == pytest.approx(full.cycles, rel=2e-3)
    assert (sampled.cus, sampled.part, sampled.residents) == (1, 1 / 8, 1)
    assert (full.cus, full.part, full.residents) == (1, 1 / 8, 1)
    assert sampled.instructions == pytest.approx(full.instructions, rel=2e-3)
    for figures in ("flops", "bytes", "clk"):
        one, other = getattr(sampled, figures), getattr(full, figures)
        assert one.keys() == other.keys()
        for name, count in other.items():
            assert one[name] == pytest.approx(count, rel=0.01, abs=2000), (figures, name)
    assert sum(sampled.stalls.values()) == pytest.approx(sum(full.stalls.values()), rel=0.02)
    facts = sampled.sampled
    # 256, 512 and 768 rows, which are whole blocks of 32, and 1000 % 32 more.
    assert facts["lengths"] == [264, 520, 776]
    assert facts["simulated_workgroups"] == [1, 1, 1]
    assert facts["simulated_kv_rows"] == 288 + 544 + 800
    assert facts["of_kv_rows"] == 1024 and facts["order_range"] == [0.0, 0.0]
    assert abs(facts["check_error"]) < 2e-3


def test_parts_and_their_merge() -> None:
    shape = Shape(1, 16, 4, 700, 1000, 64)
    sampled, full = (models(shape, method, 2) for method in ("sampled", "full"))
    assert [one.cus for one in sampled] == [one.cus for one in full] == [8, 38]
    for one, other in zip(sampled, full, strict=True):
        assert one.cycles == pytest.approx(other.cycles, rel=0.08)
        assert one.instructions == pytest.approx(other.instructions, rel=0.04)
    facts = sampled[0].sampled
    assert facts["lengths"] == [264, 520, 520, 776]
    assert facts["simulated_workgroups"] == [4, 4, 8, 4]
    assert sampled[1].sampled == {} and sampled[1].timeline is None
    assert sampled[0].timeline is not None
    low, high = facts["order_range"]
    assert 0 < low <= high < 0.02


def test_the_mask_is_sampled_where_it_is() -> None:
    (sampled,) = models(CAUSAL, "sampled", events=40)
    (full,) = models(CAUSAL, "full", events=40)
    assert sampled.cycles == pytest.approx(full.cycles, rel=2e-3)
    assert sampled.instructions == pytest.approx(full.instructions, rel=2e-3)
    for figures in ("flops", "bytes"):
        for name, count in getattr(full, figures).items():
            assert getattr(sampled, figures)[name] == pytest.approx(count, rel=0.01), name
    facts = sampled.sampled
    assert facts["lengths"] == [260, 516, 3 * 512 - 60, 4 * 512 - 60]
    assert facts["simulated_workgroups"] == [5, 5, 3, 4]
    assert abs(facts["check_error"]) < 2e-3  # likewise
    assert len(sampled.profile.events) == len(full.profile.events) == 40


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        (dataclasses.replace(ONE_ROUND, window=(300, 0)), "windows cannot be sampled"),
        (ONE_ROUND.with_lengths(384, 776), "too few rows of K and V to sample"),
        (CAUSAL.with_lengths(2500, 1500), "too few rows of K and V to sample"),
        (CAUSAL.with_lengths(9000, 8999), "rows of Q without keys cannot be sampled"),
    ],
)
def test_what_cannot_be_sampled(shape: Shape, why: str) -> None:
    with pytest.raises(NotLinear, match=f"{why}; simulate in full"):
        models(shape, "sampled")


def test_the_order_of_workgroups_moves_the_end_by_less_than_they_vary() -> None:
    sampler = FamilySampler(Shipped("rtz", 1, LARGEST[64]), ONE_ROUND, Functions())
    sampler._num_waves = 4
    cost = Cost(np.array([1000.0, 100.0, 0.0, 0.0, 0.0]), np.zeros(38), np.zeros(0))
    same = np.tile([1.0, 10.0, 0.0, 0.0], (304, 1))
    assert sampler._order_range(same, cost, 4000.0) == [0.0, 0.0]
    different = same.copy()
    different[::3, 1] = 30.0
    cycles = max(line.cycles for line in sampler._replay_device(different, cost))
    low, high = sampler._order_range(different, cost, cycles)
    assert -0.01 < low < high <= 0.01 * 4000 / cycles


# -- workgroups that share a CU --------------------------------------------------------------------

MODES = ("rtne", "rtna", "rtz")
TRUE = Speed({1: ((500.0, 10.0),), 2: ((700.0, 16.0), (800.0, 20.0))})


def shared(rows: list[int], starts: tuple[int, int]) -> Simulation:
    """Two workgroups on each of two CUs, played with TRUE in steps of one clk."""
    times = []
    for cu in range(2):
        here = [(cu, rows[cu], starts[0]), (2 + cu, rows[2 + cu], starts[1])]
        left, ends, now = [1.0, 1.0], [0.0, 0.0], float(min(starts))
        while not all(ends):
            present = [i for i in range(2) if here[i][2] <= now and not ends[i]]
            waiting = [here[i][2] for i in range(2) if here[i][2] > now]
            rates = {
                i: 1 / TRUE.duration(len(present), age, here[i][1]) for age, i in enumerate(present)
            }
            step = min([left[i] / rate for i, rate in rates.items()] + [w - now for w in waiting])
            now += step
            for i, rate in rates.items():
                left[i] -= rate * step
                if left[i] < 1e-9:
                    ends[i] = now
        times += [WorkgroupTime(h[0], cu, h[2], e) for h, e in zip(here, ends, strict=True)]  # type: ignore[arg-type]
    profile = object.__new__(LaunchProfile)
    object.__setattr__(profile, "times", tuple(reversed(times)))
    object.__setattr__(profile, "simulated_cus", 2)
    return Simulation(max(rows), 2, np.array(rows), profile)


def test_speeds_are_found_again() -> None:
    known = Speed({1: TRUE.shared[1]})
    runs = [shared([n, n + 30, n + 7, n], (0, 120)) for n in (60, 100, 250)]
    for (fixed, per_row), true in zip(fit(runs, known, 2), TRUE.shared[2], strict=True):
        assert (fixed, per_row) == pytest.approx(true, rel=1e-6)
    ends = sorted(time.end for time in runs[0].profile.times)
    assert max(runs[0].ends) == ends[-1] and len(runs[0].ends) == 2
    assert min(runs[0].ends) in ends


def test_no_speed_from_workgroups_that_are_all_the_same() -> None:
    known = Speed({1: TRUE.shared[1]})
    with pytest.raises(NotLinear, match=r"of age 0 have all the same KV rows \[60\.\]"):
        fit([shared([60] * 4, (0, 120))], known, 2)
    with pytest.raises(NotLinear, match="2 workgroups never share a CU at 60 KV rows"):
        fit([shared([60] * 4, (0, 5000))], known, 2)


# -- the table of both -----------------------------------------------------------------------------


def test_rows_compare_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000))
    cycles = {"sampled": 990.0, "full": 1000.0}

    def run(kernel: Shipped, shape: Shape, functions: object, *, method: str) -> object:
        found = None if shape == accuracy.PLAIN[1] else cycles[method]
        record = type("Record", (), {"cycles": found, "workgroups": 7})
        return type("Outcome", (), {"record": record})

    monkeypatch.setattr(accuracy, "run_operation", run)
    monkeypatch.setattr(accuracy.time, "process_time", lambda: float(next(clock)) ** 2)
    wrong = dataclasses.replace(ONE_ROUND, head_dim=512)
    kernels = accuracy.kernels(None, None, False)
    assert [kernel.round_mode for kernel in kernels] == ["rtne"]
    row, last = accuracy.rows(kernels, [accuracy.PLAIN[0], wrong, *accuracy.PLAIN[1:]])
    assert row == accuracy.Row("amdattn rtne", accuracy.PLAIN[0], 7, 990.0, 1000.0, 1.0, 5.0)
    assert last.shape == accuracy.PLAIN[2]
    assert row.error == pytest.approx(-0.01)
    assert accuracy.markdown([row]).splitlines()[2:] == [
        "| amdattn rtne | b1 h8 s16384x2048 d128 | 7 | 1,000 | 990 | -1.00% | 5 | 1 |"
    ]
    peers: list[tuple[object, ...]] = []
    for name in ("Aiter", "MoonMath", "Triton"):
        made = lambda *given, name=name: peers.append((name, *given))  # noqa: E731
        monkeypatch.setattr(accuracy, name, made)
    accuracy.kernels(Path("a"), None, True)
    assert peers == [("Aiter", Path("a"), mode) for mode in MODES] + [("Triton",)]
    peers.clear()
    accuracy.kernels(None, Path("m"), False)
    assert peers == [("MoonMath", Path("m"), mode) for mode in MODES]


# -- operands --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_rows_of_keys_are_scaled_and_put_back(layout: str) -> None:
    shape = Shape(2, 2, 2, 8, 40, 64, layout=layout)
    with ScaledKeys(shape) as operands:
        operands.fill_all()
        element = operands.dtype

        def keys() -> np.ndarray:  # type: ignore[type-arg]
            from amdattn.device import runtime

            found = np.empty(2 * 2 * 40 * 64, element)
            runtime.get().download(found.ctypes.data, operands.addresses["k"], found.nbytes)
            axes = (2, 40, 2, 64) if layout == "bshd" else (2, 2, 40, 64)
            array = found.reshape(axes).astype(np.float32)
            return array if layout == "bshd" else array.transpose(0, 2, 1, 3)

        before = keys()
        operands.put_keys(shape, [1], 16, 4.0)
        after = keys()
        assert (after[1, :16] == 4 * before[1, :16]).all()
        assert (after[1, 16:] == before[1, 16:]).all() and (after[0] == before[0]).all()
        operands.put_keys(shape, [1], 16, 1.0)
        assert (keys() == before).all()
        assert (operands.rows("k", 1, range(3, 9)) == before[0, 3:9, 1]).all()


@pytest.mark.parametrize(
    ("shape", "splits", "runs"),
    [
        # Rows of K and V, and workgroups of an XCD: two rounds of 38, then one, or what is there.
        (Shape(1, 40, 40, 16384, 3072, 128), 1, [(256, 76), (512, 38), (768, 38)]),
        (Shape(1, 8, 8, 16384, 3072, 128), 1, [(256, 43), (512, 38), (768, 38)]),
        (Shape(1, 8, 8, 7680, 3072, 128), 1, [(256, 20), (512, 20), (768, 20)]),
        (
            Shape(1, 8, 8, 7680, 3072, 128),
            3,
            [(256, 60), (512, 38), (768, 38), (768, 38)],
        ),
        (
            Shape(1, 64, 64, 8192, 8192, 128, causal=True),
            1,
            # 304 CUs are 5 tiles of 384 rows in each of 64 heads; 8192 rows end with 128 more.
            [(256, 76), (512, 38), (4 * 384 + 128, 38), (5 * 384 + 128, 38)],
        ),
    ],
)
def test_what_is_simulated_of_a_large_operation(
    monkeypatch: pytest.MonkeyPatch, shape: Shape, splits: int, runs: list[tuple[int, int]]
) -> None:
    class Stop(Exception):
        pass

    found: list[tuple[int, int]] = []

    def stop(*_: object) -> None:
        raise Stop

    monkeypatch.setattr(family, "Operands", stop)
    monkeypatch.setattr(
        FamilySampler,
        "_rows",
        lambda _, kernel, of, limit: found.append((of.seqlen_kv, limit)) or 0,
    )
    with pytest.raises(Stop):
        models(shape, "sampled", splits)
    assert found == runs
