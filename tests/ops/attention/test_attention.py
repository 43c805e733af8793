"""Results of attention calls against float64, for every way arrays can come in."""

import threading

import numpy as np
import pytest

import amdattn
from amdattn.device import runtime
from amdattn.testing import attention, attention_rounded, compare, compare_lse


def check(out, lse, q, k, v, layout="bshd", scale=None):
    expected, expected_lse = attention(q, k, v, scale, layout)
    held = compare(np.asarray(out), expected, attention_rounded(q, k, v, scale, layout))
    assert held, held.reason
    if lse is not None:
        held = compare_lse(np.asarray(lse), expected_lse, q.shape[-1])
        assert held, held.reason


def test_numpy_in_numpy_out(normal):
    q, k, v = normal(2, 70, 4, 128), normal(2, 45, 2, 128), normal(2, 45, 2, 128)
    out, lse = amdattn.flash_attn_func(q, k, v, return_lse=True)
    assert type(out) is np.ndarray and out.dtype == q.dtype and out.shape == q.shape
    assert lse.dtype == np.float32 and lse.shape == (2, 4, 70)
    check(out, lse, q, k, v)


def test_positional_prefix_is_flash_attention_2s(normal):
    q, k, v = normal(1, 5, 1, 128), normal(1, 9, 1, 128), normal(1, 9, 1, 128)
    out = amdattn.flash_attn_func(q, k, v, 0.0, 0.5, False, (-1, -1), 0.0)
    check(out, None, q, k, v, scale=0.5)


def test_bhsd_is_the_same_attention(normal):
    q, k, v = normal(1, 2, 40, 128), normal(1, 1, 33, 128), normal(1, 1, 33, 128)
    out, lse = amdattn.flash_attn_func(q, k, v, layout="bhsd", return_lse=True)
    assert out.shape == q.shape
    check(out, lse, q, k, v, layout="bhsd")
    transposed = amdattn.flash_attn_func(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)))
    np.testing.assert_array_equal(
        transposed.transpose(0, 2, 1, 3).view(np.uint16), out.view(np.uint16)
    )


@pytest.mark.parametrize(
    "slices",
    [
        pytest.param(lambda x: (x[:, :, 0], x[:, :, 1], x[:, :, 2]), id="packed"),
        pytest.param(lambda x: (x[:, ::-1, 0], x[:, ::2, 1], x[:, ::2, 2]), id="steps"),
        pytest.param(lambda x: (x[:1, :, 0], *[x[:1, :1, 1].repeat(3, 1)] * 2), id="repeated"),
    ],
)
def test_strided_inputs(normal, slices):
    q, k, v = slices(normal(2, 36, 3, 2, 128))
    check(amdattn.flash_attn_func(q, k, v), None, q, k, v)


def test_strides_no_vector_load_can_take(normal):
    """Odd row strides on the host are made compact; on the device they are an error."""
    q, k, v = (normal(1, 20, 1, 131)[..., 3:] for _ in range(3))
    check(amdattn.flash_attn_func(q, k, v), None, q, k, v)


def test_packed_device_array(normal, allocations):
    qkv = normal(1, 50, 3, 2, 128)
    on_device = amdattn.asarray(qkv)
    q, k, v = (on_device[:, :, i] for i in range(3))
    out = amdattn.empty(q.shape)
    allocations.clear()
    assert amdattn.flash_attn_func(q, k, v, out=out) is out
    assert allocations == []
    check(out.numpy(), None, *(qkv[:, :, i] for i in range(3)))


def test_packed_host_array_is_uploaded_once(normal, monkeypatch):
    device = runtime.get()
    uploads = []
    original = device.upload
    monkeypatch.setattr(
        device, "upload", lambda *args: (uploads.append(args[2]), original(*args))[1]
    )
    qkv = normal(1, 20, 3, 1, 128)
    amdattn.flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2])
    assert uploads == [qkv.nbytes]


def test_out_interleaved_with_the_inputs(normal):
    """An output may lie between the inputs, as long as no element is shared."""
    qkvo = normal(1, 24, 4, 1, 128)
    device = amdattn.asarray(qkvo)
    q, k, v, o = (device[:, :, i] for i in range(4))
    amdattn.flash_attn_func(q, k, v, out=o)
    after = device.numpy()
    np.testing.assert_array_equal(after[:, :, :3].view(np.uint16), qkvo[:, :, :3].view(np.uint16))
    check(after[:, :, 3], None, *(qkvo[:, :, i] for i in range(3)))


def test_out_on_the_host(normal):
    q, k, v = normal(1, 9, 2, 128), normal(1, 8, 2, 128), normal(1, 8, 2, 128)
    wide = np.zeros((1, 9, 2, 256), q.dtype)
    out = wide[..., :128]
    assert amdattn.flash_attn_func(q, k, v, out=out) is out
    check(out, None, q, k, v)
    assert not wide[..., 128:].any()


def test_device_result_without_out(normal):
    q, k, v = normal(1, 30, 1, 128), normal(1, 64, 1, 128), normal(1, 64, 1, 128)
    out, lse = amdattn.flash_attn_func(*map(amdattn.asarray, (q, k, v)), return_lse=True)
    assert isinstance(out, amdattn.DeviceArray) and isinstance(lse, amdattn.DeviceArray)
    check(out.numpy(), lse.numpy(), q, k, v)


def test_same_array_three_times(normal):
    x = normal(1, 31, 1, 128)
    check(amdattn.flash_attn_func(x, x, x), None, x, x, x)


def test_plan_runs_many_times_without_allocating(normal, allocations, launches, hip_stream):
    plan = amdattn.plan_attention(
        1, 20, 33, 2, 1, 128, return_lse=True, device=amdattn.device_props()
    )
    k, v = normal(1, 33, 1, 128), normal(1, 33, 1, 128)
    dk, dv = amdattn.asarray(k), amdattn.asarray(v)
    out, lse = amdattn.empty((1, 20, 2, 128)), amdattn.empty((1, 2, 20), "float32")
    handle = runtime.stream_handle(hip_stream)
    queries = [normal(1, 20, 2, 128) for _ in range(3)]
    on_device = [amdattn.asarray(q) for q in queries]
    allocations.clear()
    for i, dq in enumerate(on_device):
        result = plan.run(dq, dk, dv, out, lse=lse, stream=hip_stream)
        assert result == (out, lse)
        assert out.stream == handle
        check(out.numpy(), lse.numpy(), queries[i], k, v)
    assert allocations == []
    assert launches == [((2, 1, 1), (256, 1, 1), handle)] * 3


def test_runs_from_several_threads(normal):
    """Each thread has its own kernel argument buffer."""
    plan = amdattn.plan_attention(1, 8, 16, 1, 1, 128, device=amdattn.device_props())
    cases = [(normal(1, 8, 1, 128), normal(1, 16, 1, 128), normal(1, 16, 1, 128)) for _ in range(4)]
    results = [None] * len(cases)

    def work(i):
        results[i] = plan.run(*cases[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for case, result in zip(cases, results, strict=True):
        check(result, None, *case)


def test_repeats_bit_for_bit(normal):
    q, k, v = normal(1, 33, 1, 128), normal(1, 70, 1, 128), normal(1, 70, 1, 128)
    first, second = (amdattn.flash_attn_func(q, k, v) for _ in range(2))
    np.testing.assert_array_equal(first.view(np.uint16), second.view(np.uint16))


def test_writes_through_a_view_order_later_reads(normal, hip_stream):
    """The stream belongs to the memory: every view of it sees the pending write."""
    q, k, v = normal(1, 16, 1, 128), normal(1, 16, 1, 128), normal(1, 16, 1, 128)
    whole = amdattn.empty((1, 16, 2, 128))
    amdattn.flash_attn_func(
        *map(amdattn.asarray, (q, k, v)), out=whole[:, :, 1:], stream=hip_stream
    )
    assert whole.stream == runtime.stream_handle(hip_stream)
    check(whole.numpy()[:, :, 1:], None, q, k, v)


def test_graph_capture(normal, hip_stream):
    """A run records launches only; each replay reads the operands anew."""
    device = runtime.get()
    hip, call = device.hip, device.check
    plan = amdattn.plan_attention(1, 9, 17, 1, 1, 128, device=amdattn.device_props())
    q, k, v = normal(1, 9, 1, 128), normal(1, 17, 1, 128), normal(1, 17, 1, 128)
    dq, dk, dv = map(amdattn.asarray, (q, k, v))
    out = amdattn.empty(q.shape)
    plan.run(dq, dk, dv, out)  # loads the kernel: a capture must not
    amdattn.synchronize()
    out.stream = None
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    call("hipStreamBeginCapture", hip.hipStreamBeginCapture(hip_stream, mode))
    plan.run(dq, dk, dv, out, stream=hip_stream)
    graph = call("hipStreamEndCapture", hip.hipStreamEndCapture(hip_stream))
    executable = call("hipGraphInstantiate", hip.hipGraphInstantiateWithFlags(graph, 0))
    for _ in range(2):
        q = normal(1, 9, 1, 128)
        device.upload(dq.address, q.ctypes.data, q.nbytes)
        amdattn.synchronize()
        call("hipGraphLaunch", hip.hipGraphLaunch(executable, hip_stream))
        check(out.numpy(), None, q, k, v)
    call("hipGraphExecDestroy", hip.hipGraphExecDestroy(executable))
    call("hipGraphDestroy", hip.hipGraphDestroy(graph))


def test_strides_beyond_4_gib(normal):
    """Offsets are 64-bit: the second batch lies more than 2**32 bytes behind the first."""
    q, k, v = normal(2, 20, 1, 128), normal(2, 33, 1, 128), normal(2, 33, 1, 128)
    stride = 2**31 + 2**16
    memory = amdattn.empty((stride + 2**16,))
    device = runtime.get()

    def place(x, offset):
        address = memory.address + 2 * offset
        for batch in range(2):
            part = np.ascontiguousarray(x[batch])
            device.upload(address + 2 * batch * stride, part.ctypes.data, part.nbytes)
            amdattn.synchronize()
        view = memory.view()
        return amdattn.DeviceArray(address, x.shape, (stride, 128, 128, 1), view.dtype, view.owner)

    dq, dk, dv, out = (place(x, i << 13) for i, x in enumerate((q, k, v, np.zeros_like(q))))
    amdattn.flash_attn_func(dq, dk, dv, out=out)
    check(np.concatenate([out[:1].numpy(), out[1:].numpy()]), None, q, k, v)
