"""amdattn.testing.do_bench has Triton's arguments and results."""

import inspect

import ml_dtypes
import numpy as np
import pytest

import amdattn
import amdattn.virtual
from amdattn.device import runtime
from amdattn.testing import bench as timing, do_bench

LAUNCH_US = 2.7  # marginal launch, virtual_device/arch/gfx942.cc


def test_arguments():
    """Names, order and defaults of triton.testing.do_bench."""
    parameters = inspect.signature(do_bench).parameters.values()
    assert [(p.name, p.default) for p in parameters] == [
        ("fn", inspect.Parameter.empty),
        ("warmup", 25),
        ("rep", 100),
        ("grad_to_none", None),
        ("quantiles", None),
        ("return_mode", "mean"),
    ]


class Clock:
    """Stands in for the device's events: every timed call takes the next of these milliseconds."""

    def __init__(self, monkeypatch, times):
        self.left = list(times)
        self.timed = 0
        self.untimed = 0
        self._in_timed = False
        monkeypatch.setattr(timing, "elapsed_ms", self.elapsed_ms)

    def elapsed_ms(self, device, fn):
        self._in_timed = True
        fn()
        self._in_timed = False
        return self.left.pop(0)

    def call(self):
        self.timed += self._in_timed
        self.untimed += not self._in_timed


TIMES = [4.0, 1.0, 2.0, 8.0]
ESTIMATE = 2.0  # of 9 ms: four runs fit


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 3.75),
        ({"return_mode": "mean"}, 3.75),
        ({"return_mode": "median"}, 3.0),
        ({"return_mode": "min"}, 1.0),
        ({"return_mode": "max"}, 8.0),
        ({"return_mode": "all"}, TIMES),
        ({"quantiles": [0.5]}, 3.0),
        ({"quantiles": [0.0, 0.25, 0.5, 0.9, 1.0]}, [1.0, 1.75, 3.0, 6.8, 8.0]),
        ({"quantiles": [0.5], "return_mode": "max"}, 3.0),
    ],
    ids=str,
)
def test_results(monkeypatch, options, expected):
    clock = Clock(monkeypatch, [ESTIMATE, *TIMES])
    assert do_bench(clock.call, warmup=1, rep=9, **options) == pytest.approx(expected)
    assert clock.left == []


@pytest.mark.parametrize(
    ("warmup", "rep", "estimates", "warmups", "repetitions"),
    [
        (0, 0, [2.0], 0, 1),  # at least one
        (2, 9, [2.0], 0, 4),  # the estimate was warm-up enough
        (7, 9, [50.0], 0, 1),
        (7, 9, [6.0, 2, 2, 2, 2, 2], 3, 4),  # the first one was cold: estimated anew
        (9, 3, [1.0, 1, 2, 3, 4, 5], 3, 1),
        (0.0105, 0.0205, [0.0] * 6, 10, 20),  # what is too short to time counts as 1 us
    ],
    ids=str,
)
def test_runs_within_the_budgets(monkeypatch, warmup, rep, estimates, warmups, repetitions):
    clock = Clock(monkeypatch, [*estimates, *range(repetitions)])
    times = do_bench(clock.call, warmup, rep, return_mode="all")
    assert times == list(range(repetitions)) and clock.left == []
    assert clock.untimed == 1 + warmups  # the first one is for what happens once
    assert clock.timed == len(estimates) + repetitions


@pytest.mark.device
def test_times_are_those_of_the_device():
    """Events around the call alone: in a profile, what the model says of its launches."""
    rng = np.random.default_rng(0)
    q, k, v = (
        amdattn.asarray(rng.standard_normal((1, 200, 8, 128)).astype(ml_dtypes.bfloat16))
        for _ in range(3)
    )

    def twice():
        amdattn.flash_attn_func(q, k, v)
        amdattn.flash_attn_func(q, k, v)

    with amdattn.virtual.profile() as profile:
        times = do_bench(twice, warmup=0, rep=0.1, return_mode="all")
    of_call = [
        sum(launch.microseconds() + LAUNCH_US for launch in pair) / 1000
        for pair in zip(profile.launches[::2], profile.launches[1::2], strict=True)
    ]
    assert len(of_call) == 2 + len(times) and len(times) > 1
    assert times == pytest.approx(of_call[2:], rel=5e-3)


def test_measured_times_are_positive():
    times = do_bench(lambda: None, warmup=0, rep=0.05, return_mode="all")
    assert times and all(isinstance(ms, float) and ms > 0 for ms in times)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"return_mode": "mode"}, ValueError),
        ({"quantiles": [1.5]}, ValueError),
        ({"grad_to_none": [1]}, NotImplementedError),
    ],
)
def test_malformed(options, error):
    with pytest.raises(error):
        do_bench(lambda: None, warmup=0, rep=0, **options)


def test_caches_are_flushed_before_every_run(monkeypatch):
    order = []
    device = runtime.get()
    monkeypatch.setattr(type(device), "flush_caches", lambda self, stream=0: order.append("flush"))
    times = do_bench(lambda: order.append("run"), warmup=0, rep=0.1, return_mode="all")
    timed = order[-2 * len(times) :]
    assert timed == ["flush", "run"] * len(times)


def test_more_than_the_last_level_cache_is_flushed():
    """256 MiB on MI300X (docs of the architecture; the model's mall_bytes)."""
    from amdattn.device.runtime import _FLUSH_BYTES

    assert _FLUSH_BYTES > 256 * 2**20
