"""amdattn.testing.do_bench has Triton's arguments and results."""

import inspect

import pytest

from amdattn import runtime
from amdattn.testing import do_bench


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


def test_results():
    calls = []

    def bench(**options):
        return do_bench(lambda: calls.append(1), warmup=0.01, rep=0.05, **options)

    assert bench() > 0
    times = bench(return_mode="all")
    assert isinstance(times, list) and min(times) > 0
    low, median, high = bench(quantiles=[0.1, 0.5, 0.9])
    assert low <= median <= high
    assert isinstance(bench(quantiles=[0.5]), float)
    for mode in ("min", "max", "median"):
        assert bench(return_mode=mode) > 0
    assert calls


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
    from amdattn.runtime import _FLUSH_BYTES

    assert _FLUSH_BYTES > 256 * 2**20
