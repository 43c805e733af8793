"""Graphs, streams and threads give the bits of a plain call, whatever a plan's launches are."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.arrays import memory
from amdattn.device import runtime
from tests.support.attention.family import (
    MAIN,
    MEMBERS,
    NARROW,
    Array,
    Call,
    Member,
    operands,
    sums,
)

MIXED = ((70, 0, 33, 1), (90, 5, 40, 129))
# What runs beside each other: options, sinks, lengths of the sequences.
KINDS: dict[str, tuple[dict[str, Any], bool, Any]] = {
    "dense": ({"num_splits": 1}, False, None),
    "causal": ({"causal": True, "num_splits": 1}, False, None),
    "window, sinks": ({"window_size": (40, 7), "num_splits": 1}, True, None),
    "varlen": ({"causal": True, "num_splits": 1}, False, MIXED),
    "split": ({"num_splits": 3}, True, None),
    "causal, split": ({"causal": True, "num_splits": 2}, False, None),
    "varlen, split": ({"num_splits": 3}, False, MIXED),
}
NARROW_KIND = "narrow window, sinks"
REPETITIONS = 3


@dataclasses.dataclass
class Job:
    """A plan with its arguments on the device, and what a plain call gives."""

    plan: amdattn.AttentionPlan
    inputs: dict[str, amdattn.DeviceArray]
    expected: tuple[bytes, bytes]

    @staticmethod
    def of(member: Member, kind: str) -> Job:
        """The job, after a plain call, which also loads the kernels."""
        options, with_sinks, lengths = (
            ({"window_size": (100, 7)}, True, None) if kind == NARROW_KIND else KINDS[kind]
        )
        heads = (4, 2)
        if lengths:
            q, k, v = operands(member, sum(lengths[0]), sum(lengths[1]), heads, None)
        else:
            q, k, v = operands(member, 130, 170, heads)
        sinks = np.array([-1.0, 30.0, 0.5, 2.0], np.float32) if with_sinks else None
        call = Call(member, options, sinks=sinks, lengths=lengths)
        arrays: dict[str, Array] = {"q": q, "k": k, "v": v}
        if sinks is not None:
            arrays["sinks"] = sinks
        if lengths:
            for name, of_name in zip(("cu_seqlens_q", "cu_seqlens_k"), lengths, strict=True):
                arrays[name] = sums(of_name)
        inputs = {name: amdattn.asarray(x) for name, x in arrays.items()}
        plan = call.plan(q, k, v)
        assert len(plan.launches) == (1 if options.get("num_splits", 1) == 1 else 2)
        out, lse = plan.run(**inputs)
        call.hold(out.numpy(), lse.numpy(), q, k, v)
        return Job(plan, inputs, (out.numpy().tobytes(), lse.numpy().tobytes()))

    def results(self) -> dict[str, amdattn.DeviceArray]:
        """Memory for results and partial results, full of NaN."""
        problem, layout = self.plan.problem, "thd" if self.plan.problem.varlen else "bshd"
        made = {}
        for name, operand, dtype in (("out", "o", problem.dtype), ("lse", "lse", "float32")):
            made[name] = amdattn.empty(problem.shape(operand, layout), dtype)
        if self.plan.workspace.total_bytes:
            made["workspace"] = amdattn.empty((self.plan.workspace.total_bytes,), "uint8")
        for array in made.values():
            poison(array)
        return made


def poison(array: amdattn.DeviceArray) -> None:
    host = np.full(int(np.prod(array.shape)) * array.dtype.itemsize, 0xFF, np.uint8)
    runtime.get().upload(array.address, host.ctypes.data, host.nbytes)
    amdattn.synchronize()


def upload(array: amdattn.DeviceArray, host: Array) -> None:
    runtime.get().upload(array.address, host.ctypes.data, host.nbytes)
    amdattn.synchronize()


def bits(results: dict[str, amdattn.DeviceArray]) -> tuple[bytes, bytes]:
    return results["out"].numpy().tobytes(), results["lse"].numpy().tobytes()


@pytest.fixture
def streams() -> Iterator[list[int]]:
    device = runtime.get()
    made = [device.check("hipStreamCreate", device.hip.hipStreamCreate()) for _ in range(2)]
    yield [runtime.stream_handle(stream) for stream in made]
    amdattn.synchronize()
    for stream in made:
        device.check("hipStreamDestroy", device.hip.hipStreamDestroy(stream))


class Graph:
    """What `record` launches on a stream, to be replayed."""

    def __init__(self, stream: int, record: Callable[[], None]) -> None:
        device = runtime.get()
        hip, self._call = device.hip, device.check
        self._hip = hip
        mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
        self._call("hipStreamBeginCapture", hip.hipStreamBeginCapture(stream, mode))
        try:
            record()
        finally:
            graph = self._call("hipStreamEndCapture", hip.hipStreamEndCapture(stream))
        self._graph = graph
        self._executable = self._call(
            "hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0)
        )

    def replay(self, stream: int) -> None:
        self._call("hipGraphLaunch", self._hip.hipGraphLaunch(self._executable, stream))

    def destroy(self) -> None:
        self._call("hipGraphExecDestroy", self._hip.hipGraphExecDestroy(self._executable))
        self._call("hipGraphDestroy", self._hip.hipGraphDestroy(self._graph))


def replayed(member: Member, kind: str, streams: list[int]) -> None:
    """One graph of two runs on each of two streams, replayed beside each other; a new q between."""
    job = Job.of(member, kind)
    made = [[job.results(), job.results()] for _ in streams]

    def recording(stream: int, pair: list[dict[str, Any]]) -> Graph:
        def record() -> None:
            for results in pair:
                job.plan.run(**job.inputs, **results, stream=stream)

        return Graph(stream, record)

    graphs = [recording(stream, pair) for stream, pair in zip(streams, made, strict=True)]
    q = job.inputs["q"]
    original = q.numpy()
    reversed_q = np.ascontiguousarray(original[..., ::-1])
    upload(q, reversed_q)
    plain = job.plan.run(**job.inputs)
    expected = tuple(x.numpy().tobytes() for x in plain)
    assert expected != job.expected
    for host, wanted in ((original, job.expected), (reversed_q, expected)):
        upload(q, host)
        for results in itertools.chain(*made):
            for array in results.values():
                poison(array)
        for _ in range(2):
            for graph, stream in zip(graphs, streams, strict=True):
                graph.replay(stream)
        amdattn.synchronize()
        assert all(bits(results) == wanted for results in itertools.chain(*made))
    for graph in graphs:
        graph.destroy()


@pytest.mark.parametrize("kind", KINDS)
def test_replays_of_graphs(streams: list[int], kind: str) -> None:
    replayed(MAIN, kind, streams)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("member", MEMBERS[1:], ids=str)
def test_replays_of_graphs_of_members(streams: list[int], member: Member, kind: str) -> None:
    replayed(member, kind, streams)


def beside_each_other(jobs: list[Job], streams: list[int], repetitions: int) -> None:
    """Four threads on two streams, each with every job in an order of its own."""
    failures: list[str] = []
    finished: list[int] = []
    starting = threading.Barrier(4)

    def work(index: int) -> None:
        stream = streams[index % 2]
        order = np.random.default_rng(index).permutation(len(jobs) * repetitions) % len(jobs)
        results = {i: job.results() for i, job in enumerate(jobs)}  # of this thread
        starting.wait()
        for turn, i in enumerate(order):
            job = jobs[i]
            if turn % 3:  # memory of the cache, the workspace too
                out, lse = job.plan.run(**job.inputs, stream=stream)
                found = out.numpy().tobytes(), lse.numpy().tobytes()
            else:
                job.plan.run(**job.inputs, **results[i], stream=stream)
                found = bits(results[i])
            if found != job.expected:
                failures.append(f"thread {index}, run {turn}: {job.plan.problem}")
        finished.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(finished) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_threads_and_streams_with_one_plan(streams: list[int], kind: str) -> None:
    beside_each_other([Job.of(MAIN, kind)], streams, REPETITIONS)


def test_threads_and_streams_with_different_plans(streams: list[int]) -> None:
    """Of all kinds, and of members with other sizes."""
    jobs = [Job.of(MAIN, kind) for kind in KINDS]
    jobs += [Job.of(member, "split") for member in (MEMBERS[7], MEMBERS[10])]
    beside_each_other(jobs, streams, REPETITIONS)


def test_with_reused_memory(streams: list[int]) -> None:
    """As on a GPU: results and workspaces that runs leave behind go to the next ones."""
    with memory.caching(True):
        jobs = [Job.of(MAIN, kind) for kind in ("split", "varlen, split", "causal")]
        beside_each_other(jobs, streams, REPETITIONS)
        del jobs


@pytest.mark.slow
@pytest.mark.parametrize("member", MEMBERS, ids=str)
def test_threads_and_streams_with_members(streams: list[int], member: Member) -> None:
    beside_each_other([Job.of(member, kind) for kind in KINDS], streams, 8)


@pytest.mark.parametrize("member", NARROW[:4], ids=str)
def test_kernels_of_narrow_windows(streams: list[int], member: Member) -> None:
    replayed(member, NARROW_KIND, streams)
    beside_each_other([Job.of(member, NARROW_KIND)], streams, REPETITIONS)


# -- what a capture cannot do ----------------------------------------------------------------------


def captured_error(streams: list[int], record: Callable[[], Any]) -> str:
    """What `record` raises; the capture goes on, and its graph is empty."""
    caught: list[str] = []

    def attempt() -> None:
        with pytest.raises(ValueError, match="captured") as error:
            record()
        caught.append(str(error.value))

    Graph(streams[0], attempt).destroy()
    return caught[0]


def test_a_capture_says_what_it_lacks(streams: list[int]) -> None:
    """Nothing can be allocated for a graph; the message names what must be given."""
    q, k, v = (amdattn.asarray(x) for x in operands(MAIN, 40, 300, (2, 1)))
    out, lse = amdattn.empty(q.shape), amdattn.empty((1, 2, 40), "float32")
    split: dict[str, Any] = {"stream": streams[0], "num_splits": 2}

    def text(**more: Any) -> str:
        return captured_error(streams, lambda: amdattn.flash_attn_func(q, k, v, **split, **more))

    for more in ({}, {"out": out}, {"out": out, "lse": lse}):  # kernels are loaded; no result yet
        amdattn.flash_attn_func(q, k, v, num_splits=2, **more)
    amdattn.synchronize()
    out.stream = lse.stream = None
    assert "pass out= and workspace=" in text()
    assert "pass out= and lse= and workspace=" in text(return_lse=True)
    need = amdattn.plan_attention(
        *(1, 40, 300, 2, 1, 128), num_splits=2, device=amdattn.device_props()
    ).workspace.total_bytes
    assert f"pass workspace=plan.new_workspace() (a plan's run takes it, of {need} bytes" in text(
        out=out, lse=lse
    )
    split["num_splits"] = 1
    assert text().endswith("pass out=")


def test_a_capture_takes_no_host_arrays(streams: list[int]) -> None:
    arrays = operands(MAIN, 20, 30)
    text = captured_error(
        streams, lambda: amdattn.flash_attn_func(*arrays, num_splits=1, stream=streams[0])
    )
    assert text.startswith("q is on the host")


def test_a_capture_after_work_on_another_stream(streams: list[int]) -> None:
    q, k, v = (amdattn.asarray(x) for x in operands(MAIN, 20, 30))
    out = amdattn.flash_attn_func(q, k, v, num_splits=1)  # on the default stream

    def run() -> None:
        amdattn.flash_attn_func(q, k, v, num_splits=1, out=out, stream=streams[0])

    plain = out.numpy()
    poison(out)
    graph = Graph(streams[0], run)
    graph.replay(streams[0])
    amdattn.synchronize()
    assert out.numpy().tobytes() == plain.tobytes()
    graph.destroy()
