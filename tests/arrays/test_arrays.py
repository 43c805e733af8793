"""DeviceArray, and exchange with NumPy through DLPack."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import amdattn
from amdattn.arrays import dlpack
from amdattn.arrays.dlpack_import import import_tensor
from amdattn.device import runtime
from amdattn.dtypes import FLOAT32, as_dtype

DTYPES = ["bfloat16", "float16", "float32", "float64", "int8", "int32", "int64", "uint16"]


def counting(shape, dtype):
    return np.arange(np.prod(shape)).reshape(shape).astype(as_dtype(dtype).numpy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(dtype):
    host = counting((3, 4, 5), dtype)
    device = amdattn.asarray(host)
    assert device.shape == (3, 4, 5) and device.dtype == host.dtype and device.ndim == 3
    assert device.nbytes == host.nbytes and len(device) == 3
    back = device.numpy()
    assert back.dtype == host.dtype and back.flags.c_contiguous
    np.testing.assert_array_equal(back.view("u1"), host.view("u1"))


def test_asarray_takes_any_strides_and_converts_on_request():
    host = counting((4, 6), "float32").T[::2, ::-1]
    np.testing.assert_array_equal(amdattn.asarray(host).numpy(), host)
    rounded = amdattn.asarray(host, dtype="bfloat16")
    np.testing.assert_array_equal(rounded.numpy(), host.astype(ml_dtypes.bfloat16))
    assert amdattn.asarray(rounded) is rounded
    with pytest.raises(ValueError, match="bfloat16, not float32"):
        amdattn.asarray(rounded, dtype="float32")


def test_empty_and_zero_sizes():
    assert amdattn.empty(7, "uint8").shape == (7,)
    nothing = amdattn.asarray(np.zeros((0, 3), np.float32))
    assert nothing.numpy().shape == (0, 3)
    with pytest.raises(ValueError, match="negative"):
        amdattn.empty((2, -1))
    with pytest.raises(ValueError, match="complex64"):
        amdattn.empty((2,), "complex64")


_axis_key = st.one_of(
    st.integers(-4, 3),
    st.slices(4),
)


@settings(max_examples=60, deadline=None)
@given(
    key=st.lists(_axis_key, max_size=3), ellipsis=st.integers(0, 3), order=st.permutations(range(3))
)
def test_views_are_numpys(key, ellipsis, order):
    host = counting((4, 4, 4), "int32")
    if ellipsis < 3:
        key = [*key[:ellipsis], Ellipsis, *key[ellipsis:]][: 4 if len(key) == 3 else None]
    key = tuple(key)
    expected = host.transpose(order)[key]
    actual = amdattn.asarray(host).transpose(*order)[key]
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual.numpy(), expected)


def test_bad_keys():
    x = amdattn.empty((2, 3))
    for key, error in (
        ((0, 0, 0), IndexError),
        (5, IndexError),
        ((..., ...), IndexError),
        (None, TypeError),
        (np.array([0, 1]), TypeError),
    ):
        with pytest.raises(error):
            x[key]
    with pytest.raises(ValueError, match="permutation"):
        x.transpose(0, 0)


BELIEVED = ("address", "shape", "strides", "dtype", "device", "memory", "ndim", "size", "nbytes")


@pytest.mark.parametrize("name", BELIEVED)
def test_what_is_believed_of_an_array_cannot_be_assigned(name):
    array = amdattn.asarray(counting((3, 4), "float32"))
    for change in (lambda: setattr(array, name, (1 << 40,)), lambda: delattr(array, name)):
        with pytest.raises(AttributeError):
            change()
    np.testing.assert_array_equal(array.numpy(), counting((3, 4), "float32"))


@pytest.mark.parametrize("name", ["address", "device", "read_only"])
def test_what_is_believed_of_memory_cannot_be_assigned(name):
    memory = amdattn.empty((3, 4)).memory
    with pytest.raises(AttributeError):
        setattr(memory, name, getattr(memory, name))


def test_memory_is_freed_once(monkeypatch):
    device = runtime.get()
    freed = []
    original = device.free
    monkeypatch.setattr(device, "free", lambda address: (freed.append(address), original(address)))
    x = amdattn.empty((8, 8))
    address, part = x.address, x[2:, 3:]
    del x
    gc.collect()
    assert address not in freed
    del part
    gc.collect()
    assert freed.count(address) == 1


# -- DLPack ----------------------------------------------------------------------------------------


def test_device_and_copies():
    x = amdattn.asarray(counting((3, 4), "float32"))
    assert x.__dlpack_device__() == (10, runtime.get().ordinal)
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), x.numpy())
    with pytest.raises(RuntimeError, match="Unsupported device"):
        np.from_dlpack(x)
    with pytest.raises(BufferError, match="only by a copy"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="dl_device"):
        x.__dlpack__(dl_device=(2, 0))


@pytest.mark.parametrize("stream", [1, 2, -5])
def test_streams_that_are_not_allowed(stream):
    with pytest.raises(ValueError, match="not allowed on ROCm"):
        amdattn.empty((2,)).__dlpack__(stream=stream)


@pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0), (1, 3), (2, 0)])
def test_capsule_kind_follows_the_consumer(max_version):
    name = repr(amdattn.empty((2, 2)).__dlpack__(max_version=max_version))
    versioned = max_version is not None and max_version[0] >= 1
    assert ('"dltensor_versioned"' in name) == versioned


class Producer:
    """Hands out another object's capsules, with as much of the protocol as asked for."""

    def __init__(self, source, legacy):
        self._source = source
        self._legacy = legacy
        self.streams = []

    def __dlpack_device__(self):
        return self._source.__dlpack_device__()

    def __getattr__(self, name):
        if name != "__dlpack__":
            raise AttributeError(name)
        if self._legacy:
            return lambda stream=None: self._request(stream)
        return lambda *, stream=None, max_version=None: self._request(stream, max_version)

    def _request(self, stream, max_version=None):
        self.streams.append(stream)
        return self._source.__dlpack__(stream=stream, max_version=max_version)


@pytest.mark.parametrize("legacy", [True, False])
def test_import_is_zero_copy_and_keeps_the_producer_alive(legacy):
    x = amdattn.asarray(counting((6, 4), "bfloat16"))[::2]
    expected = x.numpy()
    memory = weakref.ref(x._memory)
    y = amdattn.from_dlpack(Producer(x, legacy))
    assert (y.address, y.shape, y.strides, y.dtype) == (x.address, x.shape, x.strides, x.dtype)
    del x
    gc.collect()
    np.testing.assert_array_equal(y.numpy(), expected)
    del y
    gc.collect()
    assert memory() is None


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_a_capsule_that_nobody_takes_is_returned(max_version):
    x = amdattn.empty((2, 2))
    memory = weakref.ref(x._memory)
    capsule = x.__dlpack__(max_version=max_version)
    del x
    gc.collect()
    assert memory() is not None
    del capsule
    gc.collect()
    assert memory() is None


def test_release_while_an_exception_is_in_flight():
    """The consumer drops the capsule with an exception set; neither may disturb the other."""
    x = amdattn.empty((2, 2), "float32")
    memory = weakref.ref(x._memory)
    with pytest.raises(RuntimeError, match="Unsupported device"):
        np.from_dlpack(x)
    with pytest.raises(ZeroDivisionError):
        (np.from_dlpack(x, device="cpu"), 1 / 0)
    del x
    gc.collect()
    assert memory() is None


def test_a_capsule_is_taken_only_once():
    capsule = dlpack.HostTensor(np.ones(3)).__dlpack__()

    class Reuse:
        def __dlpack__(self, **_):
            return capsule

    import_tensor(Reuse(), None)
    with pytest.raises(BufferError, match="no unused DLPack capsule"):
        import_tensor(Reuse(), None)


def test_copies_do_not_alias():
    x = amdattn.asarray(counting((4, 4), "float32"))[:, 1:3]
    y = amdattn.from_dlpack(
        type(
            "Copy",
            (),
            {
                "__dlpack_device__": lambda self: x.__dlpack_device__(),
                "__dlpack__": lambda self, **kw: x.__dlpack__(copy=True, **kw),
            },
        )()
    )
    assert y.address != x.address
    np.testing.assert_array_equal(y.numpy(), x.numpy())


def test_consumer_names_its_stream(normal, hip_stream):
    q = Producer(amdattn.asarray(normal(1, 4, 1, 128)), legacy=False)
    amdattn.flash_attn_func(q, q, q, stream=hip_stream)
    assert set(q.streams) == {runtime.stream_handle(hip_stream)}


def test_host_dlpack_arrays(normal):
    """A library without an importer of its own gets numpy arrays."""
    x = normal(1, 12, 1, 128)
    out = amdattn.flash_attn_func(*[Producer(dlpack.HostTensor(x), legacy=True)] * 3)
    expected = amdattn.flash_attn_func(x, x, x)
    np.testing.assert_array_equal(out.view(np.uint16), expected.view(np.uint16))


class Elsewhere:
    def __init__(self, device):
        self._device = device

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, **_):
        raise AssertionError("must be refused before it is asked")


def test_arrays_elsewhere():
    with pytest.raises(TypeError, match="device of type 2"):
        amdattn.asarray(Elsewhere((2, 0)))
    ordinal = runtime.get().ordinal
    with pytest.raises(ValueError, match=f"device {ordinal + 1} must be in 0..{ordinal}"):
        amdattn.asarray(Elsewhere((10, ordinal + 1)))
    with pytest.raises(BufferError, match="host memory"):
        amdattn.from_dlpack(np.ones(3))


def test_memory_of_another_runtime():
    """A ROCm tensor whose memory this runtime does not know is refused, not read."""
    host = np.ones(1 << 16, np.float32)

    class Foreign:
        def __dlpack_device__(self):
            return (10, runtime.get().ordinal)

        def __dlpack__(self, *, stream=None, max_version=None):
            memory = dlpack.RawMemory(host.ctypes.data, host.shape, (1,), FLOAT32, host)
            return dlpack.export_tensor(memory, FLOAT32, self.__dlpack_device__(), max_version)

    with pytest.raises(ValueError, match="two HIP runtimes"):
        amdattn.asarray(Foreign())
