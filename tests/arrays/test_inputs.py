"""Inputs: any strides on the host, lengths as they come, other protocols, no elements."""

import pickle
import sys
import types

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.arrays import dlpack
from amdattn.arrays.dlpack import HostTensor
from amdattn.device import runtime
from tests.support.attention.masked import varlen
from tests.support.handmade import Handmade

BF16 = ml_dtypes.bfloat16
F16 = np.float16


def bits(x):
    return np.asarray(x).view(f"u{x.dtype.itemsize}")


@pytest.fixture
def rng():
    return np.random.default_rng(8)


def drawn(rng, *shape, dtype=F16):
    return rng.standard_normal(shape, np.float32).astype(dtype)


# -- strides ---------------------------------------------------------------------------------------


def _fields(x):
    """The elements as a field of records of 3 bytes: no multiple of an element."""
    whole = np.zeros(x.shape, [("pad", "u1"), ("x", x.dtype)])
    whole["x"] = x
    return whole["x"]


LAYINGS = {
    "columns": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "reversed": lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1],
    "all reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1, ::-1])[::-1, ::-1, ::-1],
    "fortran": np.asfortranarray,
    "odd rows": lambda x: np.concatenate([x, x[..., :3]], -1)[..., : x.shape[-1]],
    "records": _fields,
    "unaligned": lambda x: (
        np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape)
    ),
}


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("laying", LAYINGS)
def test_host_arrays_of_any_strides(rng, dtype, laying):
    lay = LAYINGS[laying]
    q, k, v = (drawn(rng, 2, n, 2, 64, dtype=dtype) for n in (5, 40, 40))
    sinks = rng.standard_normal(4, np.float32)[::2]
    expected = amdattn.flash_attn_func(q, k, v, sinks=sinks.copy(), return_lse=True)
    out, lse = amdattn.flash_attn_func(lay(q), lay(k), lay(v), sinks=sinks, return_lse=True)
    np.testing.assert_array_equal(bits(out), bits(expected[0]))
    np.testing.assert_array_equal(lse, expected[1])
    a, b, bias = (
        drawn(rng, 3, 1, 1, 64, dtype=dtype),
        drawn(rng, 9, 1, 1, 64, dtype=dtype),
        q[0, :, 0],
    )
    a, b, bias = lay(a)[:, 0, 0], lay(b)[:, 0, 0], lay(drawn(rng, 1, 1, 1, 9, dtype=dtype))[0, 0, 0]
    product = amdattn.gemm_nt(a, b, bias=bias)
    same = amdattn.gemm_nt(a.copy(), b.copy(), bias=bias.copy())
    np.testing.assert_array_equal(bits(product), bits(same))


def test_host_results_of_any_strides(rng):
    q = drawn(rng, 1, 6, 2, 64)
    expected, expected_lse = amdattn.flash_attn_func(q, q, q, return_lse=True)
    out = np.zeros((1, 6, 2, 128), F16)
    lse = np.zeros((1, 2, 12), np.float32)
    amdattn.flash_attn_func(q, q, q, out=out[..., ::-2], lse=lse[..., 1::2])
    np.testing.assert_array_equal(bits(out[..., ::-2]), bits(expected))
    np.testing.assert_array_equal(lse[..., 1::2], expected_lse)
    assert not out[..., ::2].any() and not lse[..., ::2].any()
    with pytest.raises(ValueError, match="out has byte strides"):
        amdattn.flash_attn_func(q, q, q, out=_fields(q))


def test_device_rows_are_still_needed(rng):
    x = amdattn.asarray(drawn(rng, 1, 6, 2, 128))
    with pytest.raises(ValueError, match=r"strides.*last one must be 1.*on the host"):
        amdattn.flash_attn_func(x[..., ::2], x[..., ::2], x[..., ::2])


# -- lengths ---------------------------------------------------------------------------------------

SUMS = [0, 3, 3, 20]


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        *(lambda x, t=t: np.array(x, t) for t in ("i2", "u4", "i8", "u8")),
        lambda x: np.repeat(np.array(x, np.int64), 3)[::3],
        lambda x: amdattn.asarray(np.array(x, np.int64)),
        lambda x: amdattn.asarray(np.repeat(np.array(x, np.int64), 2))[::2],
        lambda x: amdattn.asarray(np.repeat(np.array(x, np.int32), 3))[::3],
    ],
)
def test_lengths(rng, form, on_device):
    q = drawn(rng, 20, 2, 64)
    expected = varlen(q, q, q, SUMS, SUMS)[0]
    sums = form(SUMS)
    if isinstance(sums, amdattn.DeviceArray) and not on_device:
        with pytest.raises(TypeError, match="all operands must be in the same place"):
            amdattn.flash_attn_varlen_func(q, q, q, sums, sums, 17, 17)
        return
    x = amdattn.asarray(q) if on_device else q
    got = amdattn.flash_attn_varlen_func(x, x, x, sums, sums, 17, 17)
    np.testing.assert_allclose(np.asarray(got).astype("f8"), expected, atol=0.01)
    plan = amdattn.plan_attention(
        *(3, 17, 17, 2, 2, 64), total_q=20, total_kv=20, dtype="float16", device="MI300X"
    )
    got = plan.run(x, x, x, cu_seqlens_q=sums, cu_seqlens_k=sums)
    np.testing.assert_allclose(np.asarray(got).astype("f8"), expected, atol=0.01)


@pytest.mark.parametrize(
    ("sums", "error", "text"),
    [
        ([0, 3, 21], ValueError, "at most 20"),
        ([0, 5, 3, 20], ValueError, "never fall"),
        ([0, 20], ValueError, "sequence of 20 rows"),
        ([1, 20], ValueError, "begin with 0"),
        ([0, 2**40], ValueError, "cu_seqlens_q"),
        (np.array([0, 2**32]), ValueError, "at most 20"),
        (np.array([0, 2**64 - 1, 20], np.uint64), ValueError, "never fall"),
        ([0, 2.0], TypeError, "cu_seqlens_q=2.0 must be an int"),
        ([0, True], TypeError, "cu_seqlens_q"),
        ([[0, 20]], TypeError, "cu_seqlens_q"),
        (np.array([0.0, 20.0]), ValueError, "dtype float64"),
        ("0", TypeError, "cu_seqlens_q must be"),
        ([], ValueError, r"shape \(0,\)"),
        (None, TypeError, "cu_seqlens_q must be"),
    ],
)
@pytest.mark.parametrize("on_device", [False, True])
def test_wrong_lengths(rng, sums, error, text, on_device, launches):
    x = drawn(rng, 20, 2, 64)
    x = amdattn.asarray(x) if on_device else x
    with pytest.raises(error, match=text):
        amdattn.flash_attn_varlen_func(x, x, x, sums, [0, 3, 20], 17, 17)
    assert launches == []


# -- no elements -----------------------------------------------------------------------------------


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize(
    ("q_shape", "k_shape"),
    [
        ((0, 5, 2, 64), (0, 7, 1, 64)),
        ((2, 0, 2, 64), (2, 7, 1, 64)),
        ((2, 5, 0, 64), (2, 7, 0, 64)),
        ((2, 5, 2, 64), (2, 0, 1, 64)),
        ((0, 0, 0, 64), (0, 0, 0, 64)),
    ],
)
def test_attention_of_nothing(q_shape, k_shape, on_device, launches):
    put = amdattn.asarray if on_device else np.asarray
    q, k = put(np.ones(q_shape, F16)), put(np.ones(k_shape, F16))
    v = put(np.ones((*k_shape[:-1], 32), F16))
    out, lse = amdattn.flash_attn_func(q, k, v, return_lse=True, causal=True)
    assert type(out) is type(q) and out.dtype == F16 and lse.dtype == np.float32
    assert out.shape == (*q_shape[:3], 32) and lse.shape == (q_shape[0], q_shape[2], q_shape[1])
    assert not np.asarray(out).any() and np.isneginf(np.asarray(lse)).all()
    into = put(np.ones((*out.shape[:3], 64), F16))[..., :32]
    assert amdattn.flash_attn_func(q, k, v, out=into) is into
    assert not np.asarray(into).any()
    sinks = np.arange(q_shape[2], dtype=np.float32)
    out, lse = amdattn.flash_attn_func(q, k, v, sinks=put(sinks), return_lse=True)
    assert (np.asarray(lse) == sinks[:, None]).all()
    for wrong, text in (
        ({"out": put(np.ones((1, 1, 1, 32), F16))}, "out has shape"),
        ({"num_splits": 40}, "num_splits=40"),
        ({"softmax_scale": "1"}, "softmax_scale"),
        ({"sinks": put(np.ones(9, np.float32))}, "sinks has shape"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            amdattn.flash_attn_func(q, k, v, return_lse=True, **wrong)
    assert launches == []


def test_sinks_of_rows_without_keys_are_those_of_the_kernels(rng):
    q = drawn(rng, 1, 4, 2, 64)
    sinks = np.float32([0.5, -3])
    _, seen = amdattn.flash_attn_func(
        q, q[:, :2], q[:, :2], sinks=sinks, return_lse=True, causal=True
    )
    _, none = amdattn.flash_attn_func(q, q[:, :0], q[:, :0], sinks=sinks, return_lse=True)
    np.testing.assert_array_equal(none[..., :2], seen[..., :2])  # these see no key either


@pytest.mark.parametrize("on_device", [False, True])
def test_sequences_of_nothing(rng, on_device):
    put = amdattn.asarray if on_device else np.asarray
    x, nothing = put(drawn(rng, 6, 2, 64)), put(np.ones((0, 2, 64), F16))
    call = amdattn.flash_attn_varlen_func
    for sums in ([0], [0, 0, 0]):
        out, lse = call(nothing, nothing, nothing, sums, sums, 0, 0, return_lse=True)
        assert out.shape == (0, 2, 64) and lse.shape == (2, 0)
    out, lse = call(x, nothing, nothing, [0, 2, 6], [0, 0, 0], 4, 0, return_lse=True)
    assert not np.asarray(out).any() and np.isneginf(np.asarray(lse)).all()
    out = call(nothing, x, x, [0, 0], [0, 6], 0, 6)
    assert out.shape == (0, 2, 64)
    out = call(x, x, x, [0, 0], [0, 0], 0, 0)
    assert out.shape == x.shape
    with pytest.raises(ValueError, match="cu_seqlens_k has shape"):
        call(nothing, nothing, nothing, [0], [0, 0], 0, 0)


@pytest.mark.parametrize("on_device", [False, True])
def test_products_of_nothing(on_device):
    put = amdattn.asarray if on_device else np.asarray
    a, b, bias = np.ones((3, 16), F16), np.ones((6, 16), F16), np.arange(6, dtype=F16)
    for (m, n, k), options in (
        ((0, 6, 16), {}),
        ((3, 0, 16), {"out_dtype": "float32"}),
        ((3, 6, 0), {"activation": "silu_and_mul"}),
        ((0, 0, 0), {}),
        ((0, 6, 0), {}),
    ):
        x, y, z = put(a[:m, :k].copy()), put(b[:n, :k].copy()), put(bias[:n])
        for given in ({}, {"bias": z}):
            out = amdattn.gemm_nt(x, y, **given, **options)
            columns = n // 2 if "activation" in options else n
            assert out.shape == (m, columns) and type(out) is type(x)
            assert out.dtype == np.dtype(options.get("out_dtype", F16))
    out = amdattn.gemm_nt(put(a[:, :0].copy()), put(b[:, :0].copy()), bias=put(bias), alpha=7.0)
    np.testing.assert_array_equal(np.asarray(out), np.tile(bias, (3, 1)))
    with pytest.raises(ValueError, match="out has shape"):
        amdattn.gemm_nt(put(a[:0]), put(b), put(np.ones((1, 6), F16)))
    with pytest.raises(ValueError, match="b has dtype"):
        amdattn.gemm_nt(put(a[:0]), put(b.astype(BF16)))


# -- protocols -------------------------------------------------------------------------------------


class Interface:
    """Device memory that speaks __cuda_array_interface__ alone, as hip-python's own does."""

    def __init__(self, array, **changes):
        self._array = array
        steps = tuple(step * array.dtype.itemsize for step in array.strides)
        facts = {"shape": array.shape, "typestr": array.dtype.str, "strides": steps, "version": 3}
        facts |= {"data": (array.address, False), "stream": None}
        self.__cuda_array_interface__ = {**facts, **changes}


def test_cuda_array_interface(rng, hip_stream):
    host = [drawn(rng, 1, 6, 2, 64) for _ in range(3)]
    arrays = [amdattn.asarray(x) for x in host]
    expected = amdattn.flash_attn_func(*host)
    number = runtime.stream_handle(hip_stream)
    for changes in ({}, {"strides": None}, {"stream": 1}, {"stream": number}, {"version": 2}):
        got = amdattn.flash_attn_func(*(Interface(x, **changes) for x in arrays))
        np.testing.assert_array_equal(bits(got.numpy()), bits(expected))
    out = amdattn.empty(arrays[0].shape, "float16")
    amdattn.flash_attn_func(*arrays, out=Interface(out))
    np.testing.assert_array_equal(bits(out.numpy()), bits(expected))
    assert amdattn.asarray(Interface(out)).address == out.address
    with pytest.raises(ValueError, match="out is read-only"):
        amdattn.flash_attn_func(*arrays, out=Interface(out, data=(out.address, True)))
    for changes, text in (
        ({"typestr": "<V2"}, "bfloat16"),
        ({"typestr": ">f2"}, "typestr='>f2' is not known"),
        ({"typestr": 3}, "cannot be taken"),
        ({"stream": 0}, "ambiguous"),
        ({"stream": "1"}, "stream"),
        ({"mask": 1}, "mask"),
        ({"strides": (1, 2)}, "strides"),
        ({"strides": (3, 3, 3, 3)}, "no multiples of 2"),
        ({"shape": (1, -6, 2, 64)}, "shape"),
        ({"shape": None}, "cannot be taken"),
        ({"data": (0, False)}, "address space"),
        ({"data": (out.address + 1, False)}, "multiple of the 2 bytes"),
        ({"data": (host[0].ctypes.data, False)}, "not memory of device 0"),
        ({"shape": (2**30, 6, 2, 64), "strides": None}, "not memory|address space"),
        ({"data": out.address}, "cannot be taken"),
    ):
        with pytest.raises(ValueError, match=text) as caught:
            amdattn.flash_attn_func(Interface(out, **changes), *arrays[1:])
        assert str(caught.value).startswith("q")


class Numeric:
    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return self._array


def test_numpy_protocols(rng):
    q = drawn(rng, 1, 6, 2, 64)
    expected = amdattn.flash_attn_func(q, q, q)
    views = [Numeric(q), memoryview(q)]
    views.append(types.SimpleNamespace(__array_interface__=q.__array_interface__, kept=q))
    for x in views:
        got = amdattn.flash_attn_func(x, x, x)
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(bits(got), bits(expected))
    with pytest.raises(TypeError, match="out must be"):
        amdattn.flash_attn_func(q, q, q, out=Numeric(q))
    masked = np.ma.masked_array(q, mask=q > 0)
    with pytest.raises(TypeError, match=r"q is a masked array.*filled"):
        amdattn.flash_attn_func(masked, q, q)


# -- what DeviceArray gives ------------------------------------------------------------------------


def test_numpy_of_a_device_array(rng):
    host = drawn(rng, 3, 4, dtype=BF16)
    x = amdattn.asarray(host)
    for made in (np.asarray(x), np.array(x), np.array(x, copy=True), np.asarray(x[::2, 1:])):
        assert made.dtype == BF16 and made.flags.owndata | made.flags.c_contiguous
    np.testing.assert_array_equal(np.asarray(x[::2, 1:]), host[::2, 1:])
    np.testing.assert_array_equal(np.asarray(x, np.float32), host.astype(np.float32))
    with pytest.raises(ValueError, match="only by a copy"):
        np.asarray(x, copy=False)
    assert np.asarray(x).shape == (3, 4) and float(np.asarray(x.reshape(12)[0])) == float(
        host[0, 0]
    )
    assert x[1, 2].item() == float(host[1, 2])
    with pytest.raises(ValueError, match="1 element"):
        x.item()
    assert x.device == f"rocm:{runtime.get().ordinal}"


@pytest.mark.parametrize("shape", [(12,), (2, 6), (-1,), (3, -1), (1, 3, 1, 4, 1), (12, 1), [4, 3]])
def test_reshape(rng, shape):
    host = drawn(rng, 3, 4)
    x = amdattn.asarray(host)
    for made in (x.reshape(shape), x.reshape(*shape)):
        assert made.address == x.address
        np.testing.assert_array_equal(made.numpy(), host.reshape(shape))


def test_reshape_of_views(rng):
    host = drawn(rng, 4, 6, 8)
    x = amdattn.asarray(host)
    for cut in (np.s_[:, :3], np.s_[1:3], np.s_[:, ::2], np.s_[::2, 1:2], np.s_[:0], np.s_[::-1]):
        for shape in ((-1, 8), (2, -1), (-1,), (-1, 2, 4), (1, -1, 8, 1), (-1, 4)):
            view = host[cut]
            try:
                expected = view.reshape(shape, copy=False)
            except ValueError:
                with pytest.raises(ValueError, match="shape="):
                    x[cut].reshape(shape)
            else:
                np.testing.assert_array_equal(x[cut].reshape(shape).numpy(), expected)
    for wrong, error in (((5, 5), ValueError), ((-1, -1), ValueError), ((-2,), ValueError)):
        with pytest.raises(error, match="shape"):
            x.reshape(wrong)
    with pytest.raises(TypeError, match="shape"):
        x.reshape("4")


def test_pickles_are_values(rng):
    for host in (drawn(rng, 3, 4, dtype=BF16), np.zeros((0, 2), np.int32)):
        x = amdattn.asarray(host)
        for view, expected in ((x, host), (x.transpose(), host.T)):
            made = pickle.loads(pickle.dumps(view))
            assert made.address != x.address or not host.size
            assert made.shape == expected.shape and made.dtype == host.dtype
            np.testing.assert_array_equal(made.numpy(), expected)


def test_masks_are_no_keys():
    x = amdattn.empty((2, 3))
    for key in (True, np.True_, np.array([True, False]), [0, 1], 1.0, "0"):
        with pytest.raises(TypeError, match="must be an int, a slice"):
            x[key]
    assert x[np.int64(1), np.array(2)].shape == ()


# -- torch and JAX, played -------------------------------------------------------------------------


class Library(types.ModuleType):
    """A module with the part of torch that matters here."""

    def __init__(self, recording):
        super().__init__("played_torch")
        self.recording = recording

    def is_grad_enabled(self):
        return self.recording


def parameter(array):
    class Parameter(HostTensor):
        __module__ = "played_torch.nn"
        requires_grad = True

        def detach(self):
            return HostTensor(array)

        def __dlpack__(self, **_):
            raise BufferError("Can't export tensors that require gradient")

    return Parameter(array)


def test_parameters(rng, monkeypatch):
    host = drawn(rng, 1, 6, 2, 64)
    x = parameter(host)
    library = Library(False)
    monkeypatch.setitem(sys.modules, "played_torch", library)
    expected = amdattn.flash_attn_func(host, host, host)
    np.testing.assert_array_equal(bits(amdattn.flash_attn_func(x, x, x)), bits(expected))
    library.recording = True
    with pytest.raises(ValueError, match=r"v requires a gradient.*no_grad\(\), or pass v\.detach"):
        amdattn.flash_attn_func(host, host, x)


class Jax(HostTensor):
    """An array of a device of the library's own, of which several are the CPU."""

    device, sharding, deleted = "cpu:3", None, False

    def is_deleted(self):
        return self.deleted

    def __dlpack_device__(self):
        if self.sharding is not None:
            raise ValueError("only for arrays on one device")
        return (1, 3)

    def __dlpack__(self, **_):
        if self.deleted:
            raise RuntimeError("Array has been deleted.")
        return super().__dlpack__(**_)

    def __array_namespace__(self):
        return types.SimpleNamespace(from_dlpack=self._imported)

    def _imported(self, x):
        made = Jax(np.from_dlpack(x))
        made.device = "cpu:0"
        return made

    def to_device(self, device):
        made = Jax(self._array)
        made.device = device
        return made


def test_results_come_back_where_the_inputs_are(rng):
    host = drawn(rng, 1, 6, 2, 64)
    x = Jax(host)
    out, lse = amdattn.flash_attn_func(x, x, x, return_lse=True)
    assert (type(out), out.device, lse.device) == (Jax, "cpu:3", "cpu:3")
    np.testing.assert_array_equal(bits(out._array), bits(amdattn.flash_attn_func(host, host, host)))


def test_refusals_say_what_to_do(rng):
    host = drawn(rng, 1, 6, 2, 64)
    gone, split = Jax(host), Jax(host)
    gone.deleted = True
    split.sharding = types.SimpleNamespace(device_set={0, 1, 2})
    tracer = type("DynamicJaxprTracer", (type("Tracer", (), {}),), {"shape": (1,)})()
    for x, error, text in (
        (gone, ValueError, "k is a JAX array that was deleted.*donate"),
        (split, ValueError, r"k is a JAX array in shards on 3 devices.*amdattn\.jax.*device_put"),
        (tracer, TypeError, "k must be an array with values.*tracer.*amdattn.jax"),
    ):
        with pytest.raises(error, match=text):
            amdattn.flash_attn_func(host, x, host)


def test_failures_of_a_library_name_the_argument():
    class Failing(Handmade):
        def __dlpack__(self, **_):
            raise KeyError("inside")

    with pytest.raises(ValueError, match=r"x \(.*Failing\) cannot be taken.*inside"):
        amdattn.asarray(Failing(np.ones(3, F16), (dlpack.CPU, 0)))


# -- messages --------------------------------------------------------------------------------------


def test_messages_list_what_there_is():
    x = np.ones((1, 4, 1, 128), np.float32)
    y = x.astype(F16)
    a = np.ones((4, 64), np.float32)
    for call, text in (
        (lambda: amdattn.flash_attn_func(x, x, x), "dtype=float32 .*(have bfloat16, float16)"),
        (lambda: amdattn.gemm_nt(a, a), "dtype=float32 .*(have bfloat16, float16, float8_e4m3"),
        (lambda: amdattn.flash_attn_func(y, y, y, num_splits=40), "40 is not built (have 0..16)"),
        (
            lambda: amdattn.flash_attn_func(y, y, y, softcap=4000.0),
            "(have 0.0, 0.0009765625..1024.0)",
        ),
        (lambda: amdattn.gemm_nt(y[0, 0], y[0, 0], split_k=10**6), "(have 0.."),
    ):
        with pytest.raises(amdattn.UnsupportedProblem) as caught:
            call()
        start, _, end = text.partition(".*")
        assert start in str(caught.value) and end in str(caught.value)
        assert str(caught.value).count("..") <= 1
    nearest = amdattn.supports(1, 9, 40, 2, 2, 128, num_splits=40, device="MI300X").nearest
    assert nearest == {"num_splits": 16}
