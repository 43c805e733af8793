"""Malformed and unsupported input is refused by name, before anything is launched."""

import ml_dtypes
import numpy as np
import pytest

import amdattn

BF16 = ml_dtypes.bfloat16


def arrays(q=(1, 16, 2, 128), k=(1, 24, 2, 128), v=None, dtype=BF16):
    return [np.ones(shape, dtype) for shape in (q, k, k if v is None else v)]


@pytest.mark.parametrize(
    ("argument", "value", "allowed"),
    [
        ("softcap", 3000.0, "0.0, 0.0009765625..1024.0"),
        ("dropout_p", 0.1, "0.0"),
        ("num_splits", 17, "0..16"),
        ("alibi_slopes", np.zeros(2), "None"),
    ],
)
def test_arguments_that_are_not_built(argument, value, allowed, launches):
    with pytest.raises(NotImplementedError) as caught:
        amdattn.flash_attn_func(*arrays(), **{argument: value})
    assert argument in str(caught.value)
    assert "is not built (have" in str(caught.value) and allowed in str(caught.value)
    assert launches == []


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (arrays(dtype=np.float32), "dtype=float32"),
        (
            arrays((1, 16, 2, 100), (1, 24, 2, 100)),
            r"head_dim=100 is not built \(have 8\.\.256 in s",
        ),
        (arrays(v=(1, 24, 2, 4)), r"head_dim_v=4 is not built \(have 8\.\.256 in steps of 8\)"),
    ],
)
def test_shapes_and_types_that_are_not_built(made, text, launches):
    with pytest.raises(amdattn.UnsupportedProblem, match=text) as caught:
        amdattn.flash_attn_func(*made)
    assert isinstance(caught.value, ValueError)
    assert launches == []


def test_round_modes_of_float16(launches):
    with pytest.raises(amdattn.UnsupportedProblem, match=r"round_mode=rtz .*have rtne"):
        amdattn.flash_attn_func(*arrays(dtype=np.float16), round_mode="rtz")
    assert launches == []


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (arrays((16, 2, 128)), r"q has shape \(16, 2, 128\).*4 dimensions"),
        (arrays(k=(2, 24, 2, 128)), "k has batch=2 but q has batch=1"),
        (arrays(k=(1, 24, 2, 64)), "k has dim=64 but q has dim=128"),
        (arrays(v=(1, 25, 2, 128)), "v has seq=25 but k has seq=24"),
        (arrays(v=(1, 24, 1, 128)), "v has head=1 but k has head=2"),
        (arrays(k=(1, 24, 3, 128)), "num_heads_kv=3 must divide num_heads_q=2"),
        (arrays((0, 16, 2, 128), (1, 24, 2, 128)), "k has batch=1 but q has batch=0"),
        (arrays((1, 16, 2, 0), (1, 24, 2, 0)), "head_dim=0.*empty"),
        (arrays((1, 16, 2, 128), (1, 24, 0, 128)), "num_heads_kv=0 must divide"),
        ([arrays()[0], *arrays(dtype=np.float16)[1:]], "k has dtype float16.*bfloat16"),
    ],
)
def test_malformed_shapes(made, text, launches):
    with pytest.raises(ValueError, match=text):
        amdattn.flash_attn_func(*made)
    assert launches == []


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"layout": "sbhd"}, ValueError, "layout='sbhd'.*bshd"),
        ({"round_mode": "up"}, ValueError, "round_mode='up'"),
        ({"softmax_scale": float("nan")}, ValueError, "softmax_scale=nan must be finite"),
        ({"softmax_scale": 3e38}, ValueError, "overflows float32"),
        ({"softmax_scale": "big"}, TypeError, "softmax_scale='big'"),
        ({"causal": "yes"}, TypeError, "causal='yes' must be a bool"),
        ({"window_size": 4}, TypeError, "window_size=4 must be a pair"),
        ({"dropout_p": 1.5}, ValueError, "dropout_p=1.5"),
        ({"num_splits": -1}, ValueError, "num_splits=-1"),
        ({"stream": "s"}, TypeError, "stream='s'"),
    ],
)
def test_malformed_options(options, error, text, launches):
    with pytest.raises(error, match=text):
        amdattn.flash_attn_func(*arrays(), **options)
    assert launches == []


@pytest.mark.parametrize("x", [None, 3.0, [[1.0]], "q"])
def test_not_an_array(x, launches):
    with pytest.raises(TypeError, match=r"q must be a numpy\.ndarray"):
        amdattn.flash_attn_func(x, *arrays()[1:])
    assert launches == []


def test_bfloat16_bits_without_a_type():
    q, k, v = arrays()
    with pytest.raises(TypeError, match=r"q\.view\(ml_dtypes\.bfloat16\)"):
        amdattn.flash_attn_func(q.view("V2"), k, v)


def test_foreign_byte_order():
    q, k, v = arrays(dtype=np.float32)
    with pytest.raises(TypeError, match="byte order"):
        amdattn.flash_attn_func(q.astype(">f4"), k, v)


def test_host_and_device_do_not_mix(launches):
    q, k, v = arrays()
    with pytest.raises(TypeError, match="q on the device, k on the host"):
        amdattn.flash_attn_func(amdattn.asarray(q), k, v)
    with pytest.raises(TypeError, match="out on the device"):
        amdattn.flash_attn_func(q, k, v, out=amdattn.empty(q.shape))
    assert launches == []


def test_bad_outputs(launches):
    q, k, v = arrays()
    dq, dk, dv = map(amdattn.asarray, (q, k, v))
    read_only = np.zeros(q.shape, BF16)
    read_only.flags.writeable = False
    wide = np.zeros((1, 1, 2, 128), BF16)
    for inputs, out, text in (
        ((q, k, v), np.zeros((1, 16, 2, 64), BF16), "out has shape"),
        ((q, k, v), np.zeros(q.shape, np.float32), "out has dtype float32"),
        ((q, k, v), read_only, "out is read-only"),
        ((q, k, v), np.broadcast_to(wide, q.shape), "out is read-only"),
        ((q, k, v), q, "out overlaps q"),
        ((dq, dk, dv), dq, "out overlaps q"),
        ((dq, dk, dv), dk[:, 8:], "out overlaps k"),
        ((dq, dk, dv), dq.transpose(0, 1, 2, 3)[:, ::-1], "out overlaps q"),
    ):
        with pytest.raises(ValueError, match=text):
            amdattn.flash_attn_func(*inputs, out=out)
    assert launches == []


def test_output_that_overlaps_itself(launches):
    x = amdattn.empty((1, 16, 2, 128))
    repeated = amdattn.DeviceArray(
        x.address, x.shape, (4096, 0, 128, 1), x.view().dtype, x.view().owner
    )
    with pytest.raises(ValueError, match="out has overlapping elements"):
        amdattn.flash_attn_func(*(amdattn.asarray(a) for a in arrays()), out=repeated)
    assert launches == []


@pytest.mark.parametrize(
    ("shape", "cut", "text"),
    [
        ((1, 16, 2, 136), lambda x: x[..., 4:132], "address .* multiple of 16 bytes"),
        ((1, 16, 2, 132), lambda x: x[..., :128], "stride 132"),
    ],
)
def test_device_arrays_the_kernel_cannot_load(shape, cut, text, launches):
    q = cut(amdattn.empty(shape))
    kv = amdattn.empty((1, 16, 2, 128))
    with pytest.raises(ValueError, match=text):
        amdattn.flash_attn_func(q, kv, kv)
    assert launches == []


def test_plan_refuses_other_shapes(launches):
    plan = amdattn.plan_attention(1, 16, 24, 2, 2, 128, device=amdattn.device_props())
    q, k, v = arrays(k=(1, 25, 2, 128))
    with pytest.raises(ValueError, match=r"k has shape \(1, 25, 2, 128\).*\(1, 24, 2, 128\)"):
        plan.run(q, k, v)
    with pytest.raises(ValueError, match="lse was given"):
        plan.run(*arrays(), lse=np.zeros((1, 2, 16), np.float32))
    assert launches == []


@pytest.mark.device
def test_a_checked_call_does_not_excuse_the_next(launches):
    """Checks are remembered by what they depend on, not by the call site."""
    q, k, v = map(amdattn.asarray, arrays())
    out = amdattn.empty(q.shape)
    amdattn.flash_attn_func(q, k, v, out=out)
    with pytest.raises(ValueError, match="out overlaps q"):
        amdattn.flash_attn_func(q, k, v, out=q)
    with pytest.raises(ValueError, match="must divide num_heads_q"):
        amdattn.flash_attn_func(q, k, v, out=out, layout="bhsd")
    amdattn.synchronize()
    assert len(launches) == 1


def test_sizes_beyond_int32():
    with pytest.raises(ValueError, match=r"seqlen_kv=2147483648 must be in 1\.\.2147483647"):
        amdattn.plan_attention(1, 1, 2**31, 1, 1, 128, device="MI300X")
