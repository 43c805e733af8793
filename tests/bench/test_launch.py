"""The fast paths of a launch give what the slow ones give; the null device; `bench launch`."""

import json
import threading

import ml_dtypes
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import amdattn
from amdattn.bench import launch as bench
from amdattn.cli import bench_launch
from amdattn.device import runtime

SHAPE_Q, SHAPE_KV = (1, 20, 2, 128), (1, 33, 1, 128)


def normal(seed, *shape):
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values.astype(ml_dtypes.bfloat16)


def bits(array):
    return np.asarray(array.numpy() if isinstance(array, amdattn.DeviceArray) else array).tobytes()


def new_plan(**options):
    """A plan that no other test has run: its memory of checked operands is empty."""
    plan = amdattn.plan_attention(1, 20, 33, 2, 1, 128, device=amdattn.device_props(), **options)
    return type(plan)(plan.problem, plan.props, plan.launches, plan.workspace, plan.reasons)


@pytest.fixture
def inputs():
    return tuple(normal(i, *shape) for i, shape in enumerate((SHAPE_Q, SHAPE_KV, SHAPE_KV)))


@pytest.fixture
def null_device():
    """Sets the option; 0 again after the test."""
    yield lambda value: amdattn.virtual.set_option("null", value)
    amdattn.virtual.set_option("null", 0)


@pytest.fixture
def streams():
    device = runtime.get()
    made = [device.check("hipStreamCreate", device.hip.hipStreamCreate()) for _ in range(3)]
    yield [runtime.stream_handle(stream) for stream in made]
    amdattn.synchronize()
    for stream in made:
        device.check("hipStreamDestroy", device.hip.hipStreamDestroy(stream))


class Foreign:
    """Device memory that speaks DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


# -- same bits -------------------------------------------------------------------------------------


def test_every_path_gives_the_same_bits(inputs):
    plan = new_plan(return_lse=True)
    device = tuple(map(amdattn.asarray, inputs))
    wanted, wanted_lse = map(bits, plan.run(*inputs))  # host arrays: packed for this call alone
    for _ in range(2):
        out, lse = amdattn.empty(SHAPE_Q), amdattn.empty((1, 2, 20), "float32")
        for _ in range(3):  # checked; packed to be kept; submitted as it was packed
            assert plan.run(*device, out, lse=lse) == (out, lse)
            assert (bits(out), bits(lse)) == (wanted, wanted_lse)
        out = amdattn.empty(SHAPE_Q)
        assert amdattn.flash_attn_func(*device, out=out) is out and bits(out) == wanted
        assert bits(plan.run(*device)[0]) == wanted
        assert bits(amdattn.flash_attn_func(*device)) == wanted
        amdattn.flash_attn_func(*map(Foreign, device), out=(out := amdattn.empty(SHAPE_Q)))
        assert bits(out) == wanted
    assert plan._bound


def test_new_contents_of_the_same_arrays(inputs):
    """A packed launch holds addresses, not data."""
    plan = new_plan()
    q, k, v = map(amdattn.asarray, inputs)
    out = amdattn.empty(SHAPE_Q)
    first, again = (bits(plan.run(q, k, v, out)) for _ in range(2))
    assert first == again and plan._bound
    other = normal(9, *SHAPE_Q)
    runtime.get().upload(q.address, other.ctypes.data, other.nbytes)
    assert bits(plan.run(q, k, v, out)) == bits(plan.run(other, *inputs[1:])) != first


def test_slices_made_anew_are_packed_once():
    qkv = amdattn.asarray(normal(3, 1, 20, 3, 2, 128))
    plan = amdattn.plan_attention(1, 20, 20, 2, 2, 128, device=amdattn.device_props())
    plan = type(plan)(plan.problem, plan.props, plan.launches, plan.workspace, plan.reasons)
    out = amdattn.empty(SHAPE_Q)
    results = {bits(plan.run(*(qkv[:, :, i] for i in range(3)), out)) for _ in range(4)}
    assert len(plan._bound) == 1 and len(results) == 1


def test_another_layout_of_the_same_memory_is_packed_anew():
    plan = amdattn.plan_attention(1, 4, 4, 4, 4, 128, device=amdattn.device_props())
    hosts = [normal(i, 1, 4, 4, 128) for i in range(3)]
    arrays = tuple(map(amdattn.asarray, hosts))
    out = amdattn.empty((1, 4, 4, 128))
    one, other = (bits(plan.run(*arrays, out, layout=layout)) for layout in ("bshd", "bhsd"))
    assert one != other
    assert other == bits(plan.run(*hosts, layout="bhsd"))


def test_what_is_remembered_is_bounded(inputs, null_device):
    null_device(2)
    plan = new_plan()
    q, k, v = map(amdattn.asarray, inputs)
    outs = [amdattn.empty(SHAPE_Q) for _ in range(70)]
    for out in outs:
        plan.run(q, k, v, out)
        plan.run(q, k, v, out)
    assert 0 < len(plan._bound) <= 64 and 0 < len(plan._checked) <= 64


# -- nothing unchecked gets through ----------------------------------------------------------------


def test_a_packed_launch_excuses_no_other(inputs):
    plan = new_plan()
    q, k, v = map(amdattn.asarray, inputs)
    out = amdattn.empty(SHAPE_Q)
    for _ in range(2):
        plan.run(q, k, v, out)
    with pytest.raises(ValueError, match="out overlaps q"):
        plan.run(q, k, v, q)
    with pytest.raises(ValueError, match="lse was given"):
        plan.run(q, k, v, out, lse=amdattn.empty((1, 2, 20), "float32"))
    with pytest.raises(ValueError, match="k has shape"):
        plan.run(q, q, v, out)
    with pytest.raises(TypeError, match="same place"):
        plan.run(q, inputs[1], v, out)
    with pytest.raises(ValueError, match="layout='sbhd'"):
        plan.run(q, k, v, out, layout="sbhd")


def test_options_that_compare_equal_are_not_the_same(inputs):
    device = tuple(map(amdattn.asarray, inputs))
    amdattn.flash_attn_func(*device, causal=False, num_splits=0)
    with pytest.raises(TypeError, match="causal=0 must be a bool"):
        amdattn.flash_attn_func(*device, causal=0, num_splits=0)
    with pytest.raises(TypeError, match=r"num_splits=0.0 must be an int"):
        amdattn.flash_attn_func(*device, causal=False, num_splits=0.0)


# -- streams and threads ---------------------------------------------------------------------------


def test_streams(inputs, streams, monkeypatch):
    device = runtime.get()
    waits, launches = [], []
    monkeypatch.setattr(device, "wait_for", lambda *pair: waits.append(pair))
    original = device.submit
    monkeypatch.setattr(
        device, "submit", lambda *args: (launches.append(args[2]), original(*args))[1]
    )
    plan = new_plan()
    q, k, v = map(amdattn.asarray, inputs)
    out = amdattn.empty(SHAPE_Q)
    one, two, _ = streams
    for stream in (one, one, one, two):
        plan.run(q, k, v, out, stream=stream)
    assert launches == [one, one, one, two] and len(plan._bound) == 1
    assert waits == [(two, one)]  # the write to `out` before
    assert out.stream == two and q.stream is None


def test_threads_submit_the_same_packed_launches(inputs, streams):
    """Every thread on a stream of its own, all with the same inputs, and all packing at a time."""
    plan = new_plan()
    queries = [amdattn.asarray(normal(i, *SHAPE_Q)) for i in range(len(streams))]
    k, v = map(amdattn.asarray, inputs[1:])
    wanted = [bits(plan.run(q, k, v)) for q in queries]
    failures = []
    start = threading.Barrier(len(streams))

    def work(thread, stream):
        start.wait()
        for turn in range(12):
            i = (thread + turn) % len(queries)
            out = plan.run(queries[i], k, v, stream=stream) if turn % 2 else outs[thread][i]
            if turn % 2 == 0:
                plan.run(queries[i], k, v, out, stream=stream)
            if bits(out) != wanted[i]:
                failures.append((thread, turn))

    outs = [[amdattn.empty(SHAPE_Q) for _ in queries] for _ in streams]
    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# -- the null device -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, 2])
def test_the_null_device_executes_nothing(inputs, null_device, value):
    q, k, v = map(amdattn.asarray, inputs)
    before = normal(5, *SHAPE_Q)
    out = amdattn.asarray(before)
    launches = amdattn.virtual.counter("launches")
    null_device(value)
    amdattn.flash_attn_func(q, k, v, out=out)
    assert bits(out) == before.tobytes()
    with pytest.raises(amdattn.HipError, match="hipErrorInvalidValue"):  # still checked
        runtime.get().launch(
            runtime.get().function(amdattn.kernels()[0]),
            *((0, 1, 1), (256, 1, 1), runtime.get().kernarg_buffer(256), 0),
        )
    assert amdattn.virtual.counter("launches") == launches
    null_device(0)
    assert bits(amdattn.flash_attn_func(q, k, v, out=out)) != before.tobytes()


def test_the_null_device_has_two_ways_to_complete(null_device):
    with pytest.raises(ValueError, match="refused option null=3"):
        null_device(3)


# -- the measurement -------------------------------------------------------------------------------


def test_measure():
    turns = []
    measurements = bench.measure(10, lambda: turns.append(1))
    assert len(turns) == bench.num_rounds(10) == 20 and len(measurements) == 2
    for measurement in measurements:
        rows = {row.path: row for row in measurement.rows}
        assert set(bench.BARS) <= set(rows)
        for row in rows.values():
            assert 0 < row.minimum <= row.median and row.low <= row.median <= row.high
        assert rows[bench.RAW].beyond_raw == 0
        # A guard against another order of magnitude: the best of ten batches is not noise.
        for path in bench.BARS:
            assert rows[path].minimum < 40 * bench.BARS[path]
    table = bench.markdown(measurements)
    assert table.count("| path |") == 2 and f"| {bench.PLAN_RUN} |" in table
    out = amdattn.empty(SHAPE_Q)  # the device executes again
    arrays = [amdattn.asarray(normal(i, *SHAPE_Q)) for i in range(3)]
    launches = amdattn.virtual.counter("launches")
    amdattn.flash_attn_func(*arrays, out=out)
    amdattn.synchronize()
    assert amdattn.virtual.counter("launches") == launches + 1
    with pytest.raises(ValueError, match="rounds=1"):
        bench.measure(1)


def test_command():
    app = typer.Typer()
    app.command()(bench_launch.launch)
    result = CliRunner().invoke(app, ["--rounds", "2"], env={"COLUMNS": "80"})
    assert result.exit_code in (0, 1), result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "beyond raw" in result.stdout and "times measured on this CPU" in result.stdout
    result = CliRunner().invoke(app, ["--rounds", "2", "--json"])
    assert result.exit_code in (0, 1), result.output  # a bar may be missed on a busy machine
    document = json.loads(result.stdout)
    assert [len(m["rows"]) > 8 for m in document["measurements"]] == [True, True]
    assert document["unit"] == "microseconds per call"
