"""Graphs that are captured after a warm-up, while arrays come and go; processes that fork."""

import gc
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import amdattn
from amdattn.arrays import memory
from amdattn.device import runtime


@pytest.fixture(params=[0, 1], ids=["blocking", "non-blocking"])
def stream(request):
    device = runtime.get()
    made = device.check(
        "hipStreamCreateWithFlags", device.hip.hipStreamCreateWithFlags(request.param)
    )
    yield runtime.stream_handle(made)
    amdattn.synchronize()
    device.check("hipStreamDestroy", device.hip.hipStreamDestroy(made))


def begin(stream, mode="Global"):
    device = runtime.get()
    modes = device.hip.hipStreamCaptureMode
    device.check(
        "hipStreamBeginCapture",
        device.hip.hipStreamBeginCapture(stream, getattr(modes, f"hipStreamCaptureMode{mode}")),
    )


def end(stream, replays=1):
    device = runtime.get()
    hip = device.hip
    graph = device.check("hipStreamEndCapture", hip.hipStreamEndCapture(stream))
    made = device.check("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    for _ in range(replays):
        device.check("hipGraphLaunch", hip.hipGraphLaunch(made, stream))
    device.synchronize(stream)
    device.check("hipGraphExecDestroy", hip.hipGraphExecDestroy(made))
    device.check("hipGraphDestroy", hip.hipGraphDestroy(graph))


@pytest.mark.parametrize("warmed_on", ["default", "other"])
def test_capture_after_a_warm_up(stream, hip_stream, normal, warmed_on):
    """What was written on another stream, the warm-up's result among it, is read by the graph."""
    other = runtime.stream_handle(hip_stream) if warmed_on == "other" else None
    host = [normal(1, 40, 2, 128) for _ in range(3)]
    q, k, v = map(amdattn.asarray, host)
    middle, out = amdattn.empty(q.shape), amdattn.empty(q.shape)
    for _ in range(2):
        amdattn.flash_attn_func(q, k, v, out=middle, num_splits=1, stream=other)
        amdattn.flash_attn_func(middle, k, v, out=out, num_splits=1, stream=other)
    expected = out.numpy()
    amdattn.flash_attn_func(q, k, v, out=middle, num_splits=1, stream=other)  # pending
    begin(stream)
    amdattn.flash_attn_func(middle, k, v, out=out, num_splits=1, stream=stream)
    end(stream)
    np.testing.assert_array_equal(out.numpy().view("u2"), expected.view("u2"))


def test_capture_of_a_product_after_a_warm_up(stream, normal):
    a, b = amdattn.asarray(normal(4, 512)), amdattn.asarray(normal(64, 512))
    plan = amdattn.plan_gemm(4, 64, 512, split_k=4, device=amdattn.device_props())
    out, workspace = amdattn.empty((4, 64)), plan.new_workspace()
    plan.run(a, b, out, workspace=workspace)
    expected = out.numpy()
    plan.run(a, b, out, workspace=workspace)
    begin(stream)
    plan.run(a, b, out, workspace=workspace, stream=stream)
    end(stream, replays=2)
    np.testing.assert_array_equal(out.numpy().view("u2"), expected.view("u2"))


def test_a_capture_of_a_product_takes_no_host_arrays(stream, normal):
    a, b = normal(4, 512), normal(64, 512)
    expected = amdattn.gemm_nt(a, b)
    begin(stream)
    for given in ({}, {"out": np.zeros_like(expected)}):
        with pytest.raises(ValueError, match="a is on the host, but a graph is being captured"):
            amdattn.gemm_nt(a, b, **given, stream=stream)
    end(stream)  # which is not spoilt
    np.testing.assert_array_equal(amdattn.gemm_nt(a, b, stream=stream), expected)


@pytest.mark.parametrize("mode", ["Global", "ThreadLocal", "Relaxed"])
@pytest.mark.parametrize("reuses", [True, False])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_arrays_dropped_during_a_capture(normal, monkeypatch, mode, reuses, known):
    """Also on a stream, and in a thread, that this package has never heard of."""
    device = runtime.get()
    stream = device.check("hipStreamCreate", device.hip.hipStreamCreate())
    freed = []
    free = device.free
    monkeypatch.setattr(device, "free", lambda address: (freed.append(address), free(address)))
    with memory.caching(reuses):
        q, out = amdattn.asarray(normal(1, 8, 1, 128)), amdattn.empty((1, 8, 1, 128))
        plan = amdattn.plan_attention(1, 8, 8, 1, 1, 128, device=amdattn.device_props())
        plan.run(q, q, q, out)
        expected = out.numpy()
        dead = [amdattn.empty((1000,)) for _ in range(4)]
        unordered = dead[0].__dlpack__(stream=-1)
        addresses = {array.address for array in dead}
        if known:
            runtime.stream_handle(stream)
        begin(stream, mode)
        if known:
            plan.run(q, q, q, out, stream=stream)
        del dead, unordered
        gc.collect()
        thread = threading.Thread(target=lambda: amdattn.empty((1 << 16,)))
        thread.start()
        thread.join()
        amdattn.empty((1 << 17,))
        if known:
            assert not addresses & set(freed)
        end(stream)
        np.testing.assert_array_equal(out.numpy().view("u2"), expected.view("u2"))
        amdattn.empty((1 << 18,))
        amdattn.empty_cache()
    assert addresses <= set(freed) and len(freed) == len(set(freed))
    device.check("hipStreamDestroy", device.hip.hipStreamDestroy(stream))


# -- fork ------------------------------------------------------------------------------------------


def test_a_fork_says_so():
    code = """
        import os, sys, gc, numpy as np, amdattn
        from amdattn.arrays import buffers
        x = amdattn.asarray(np.ones((1, 4, 1, 128), np.float16))
        out = amdattn.empty(x.shape, "float16")
        plan = amdattn.plan_attention(1, 4, 4, 1, 1, 128, dtype="float16", device="MI300X")
        a = amdattn.asarray(np.ones((4, 128), np.float16))
        product = amdattn.plan_gemm(4, 4, 128, dtype="float16", device="MI300X")
        c = product.run(a, a)
        plan.run(x, x, x, out)
        calls = {
            "plan.run": lambda: plan.run(x, x, x, out),
            "flash_attn_func": lambda: amdattn.flash_attn_func(x, x, x),
            "gemm plan": lambda: product.run(a, a, c),
            "gemm": lambda: amdattn.gemm_nt(a, a),
            "numpy": x.numpy,
            "empty": lambda: amdattn.empty(3),
            "host": lambda: amdattn.flash_attn_func(*[np.ones((1, 4, 1, 128), np.float16)] * 3),
            "synchronize": amdattn.synchronize,
            "props": amdattn.device_props,
            "counter": lambda: amdattn.virtual.counter("launches"),
            "use_device": lambda: amdattn.use_device("virtual:gfx942"),
        }
        child = os.fork()
        if child == 0:
            for name, call in calls.items():
                try:
                    call()
                except amdattn.BindingError as error:
                    assert "is a fork" in str(error) and "spawn" in str(error), (name, error)
                else:
                    print(name, "ran", flush=True)
                    os._exit(1)
            del x, out, a, c
            gc.collect()
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        plan.run(x, x, x, out)
        assert (out.numpy() == 1).all()
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def _in_child(queue):
    x = np.ones((1, 4, 1, 128), np.float16)
    queue.put(float(amdattn.flash_attn_func(x, x, x).sum()))


def test_a_spawned_process_has_a_device_of_its_own():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    amdattn.empty(4)
    process = context.Process(target=_in_child, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == 512.0
    process.join()
