"""The shipped attention kernel: device arrays through a plan, against float64."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import amdattn
from amdattn import runtime
from amdattn.testing import attention, attention_rounded, compare, compare_lse

Array = npt.NDArray[Any]

HEAD_DIM = 128
SIZES = (1, 2, 63, 64, 65, 127, 128, 129, 300, 1024)
# Every size meets itself or a neighbour, a small one and a large one, on both sides.
PAIRS = sorted(
    {(SIZES[i], SIZES[(a * i + b) % 10]) for a, b in ((1, 0), (3, 1), (7, 4)) for i in range(10)}
    - {(1024, 1024)}
)
GUARD = 8  # elements: 16 bytes, so that rows keep their alignment
LSE_GUARD = 64
POISON = 0xFFA5  # a signalling NaN
LSE_POISON = 0xFFA5A5A5
MAX_RMS = 3e-3  # of the fp64 result's; rounding P and O to bfloat16 gives about 2.3e-3
MAX_LSE_ERROR = 2.0**-20  # relative or absolute: eight roundings of float32


def normal(seed: int, *shape: int) -> Array:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)


def operands(
    seqlen_q: int,
    seqlen_kv: int,
    batch: int = 1,
    heads: tuple[int, int] = (1, 1),
    layout: str = "bshd",
) -> tuple[Array, Array, Array]:
    """q, k and v, normally distributed; `heads` are those of q and of k and v."""
    order = (0, 1, 2, 3) if layout == "bshd" else (0, 2, 1, 3)
    seed = 1000 * seqlen_q + seqlen_kv
    q, k, v = (
        normal(seed + i, *(batch, (seqlen_q, seqlen_kv)[i > 0], heads[i > 0], HEAD_DIM))
        for i in range(3)
    )
    return q.transpose(order), k.transpose(order), v.transpose(order)


def plan_for(q: Array, k: Array, layout: str, scale: float | None) -> amdattn.AttentionPlan:
    seq, head = (1, 2) if layout == "bshd" else (2, 1)
    return amdattn.plan_attention(
        q.shape[0],
        q.shape[seq],
        k.shape[seq],
        q.shape[head],
        k.shape[head],
        HEAD_DIM,
        device=amdattn.device_props(),
        softmax_scale=scale,
        return_lse=True,
    )


def placed(
    memory: amdattn.DeviceArray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> amdattn.DeviceArray:
    """A view with any strides, `offset` elements into the memory of `memory`."""
    view = memory.view()
    owner: Any = view.owner
    address = view.address + offset * view.dtype.itemsize
    return amdattn.DeviceArray(address, shape, strides, view.dtype, owner)


def run(
    q: Array,
    k: Array,
    v: Array,
    layout: str = "bshd",
    scale: float | None = None,
    on_device: Sequence[amdattn.DeviceArray] | None = None,
) -> tuple[Array, Array]:
    """(out, lse) from inside larger buffers of NaN, of which the rest must stay as it was."""
    plan = plan_for(q, k, layout, scale)
    seq, head = (1, 2) if layout == "bshd" else (2, 1)
    lse_shape = (q.shape[0], q.shape[head], q.shape[seq])
    wide_shape = (*(n + 2 for n in q.shape[:3]), HEAD_DIM + 2 * GUARD)
    wide = np.full(wide_shape, POISON, np.uint16)
    flat = np.full(int(np.prod(lse_shape)) + 2 * LSE_GUARD, LSE_POISON, np.uint32)
    wide_device = amdattn.asarray(wide.view(ml_dtypes.bfloat16))
    flat_device = amdattn.asarray(flat.view(np.float32))
    inner = (slice(1, -1), slice(1, -1), slice(1, -1), slice(GUARD, -GUARD))
    out_device = wide_device[inner]
    lse_strides = (lse_shape[1] * lse_shape[2], lse_shape[2], 1)
    lse_device = placed(flat_device, lse_shape, lse_strides, LSE_GUARD)
    dq, dk, dv = on_device or [amdattn.asarray(x) for x in (q, k, v)]
    plan.run(dq, dk, dv, out_device, lse=lse_device, layout=layout)
    wide_after = wide_device.numpy().view(np.uint16)
    flat_after = flat_device.numpy().view(np.uint32)
    out, lse = wide_after[inner].copy(), flat_after[LSE_GUARD:-LSE_GUARD].copy()
    wide_after[inner] = POISON
    flat_after[LSE_GUARD:-LSE_GUARD] = LSE_POISON
    assert (wide_after == POISON).all() and (flat_after == LSE_POISON).all()
    assert not (out == POISON).any() and not (lse == LSE_POISON).any()
    return out.view(ml_dtypes.bfloat16), lse.view(np.float32).reshape(lse_shape)


def check(
    q: Array,
    k: Array,
    v: Array,
    layout: str = "bshd",
    scale: float | None = None,
    on_device: Sequence[amdattn.DeviceArray] | None = None,
) -> tuple[Array, Array]:
    """Run, and hold both results against float64."""
    out, lse = run(q, k, v, layout, scale, on_device)
    with np.errstate(invalid="ignore"):
        expected, expected_lse = attention(q, k, v, scale, layout)
        rounded = attention_rounded(q, k, v, scale, layout)
    held = compare(out, expected, rounded)
    assert held, held.reason
    held = compare_lse(lse, expected_lse, HEAD_DIM)
    assert held, held.reason
    return out, lse


@pytest.mark.parametrize(("seqlen_q", "seqlen_kv"), PAIRS)
def test_sequence_lengths(seqlen_q: int, seqlen_kv: int) -> None:
    check(*operands(seqlen_q, seqlen_kv))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_kv"), sorted(set(itertools.product(SIZES, SIZES)) - set(PAIRS))
)
def test_every_pair_of_sequence_lengths(seqlen_q: int, seqlen_kv: int) -> None:
    check(*operands(seqlen_q, seqlen_kv))


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("heads", [(1, 1), (3, 3), (4, 2), (6, 1), (10, 5)])
@pytest.mark.parametrize("batch", [1, 3])
def test_batch_heads_layout(batch: int, heads: tuple[int, int], layout: str) -> None:
    check(*operands(37, 70, batch, heads, layout), layout=layout)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("axis", [1, 2, 3], ids=["packed", "per_head", "per_row"])
def test_packed_strides(axis: int, layout: str) -> None:
    """q, k and v are slices of one array, at every place where projections leave them."""
    shape = (2, 130, 3, HEAD_DIM) if layout == "bshd" else (2, 3, 130, HEAD_DIM)
    packed = normal(7, *shape[:axis], 3, *shape[axis:])
    device = amdattn.asarray(packed)

    def part(x: Any, i: int) -> Any:
        return x[(slice(None),) * axis + (i,)]

    q, k, v = (part(packed, i) for i in range(3))
    check(q, k, v, layout, on_device=[part(device, i) for i in range(3)])


def test_negative_and_skipping_strides() -> None:
    whole = [normal(i, 2, 140, 2, HEAD_DIM) for i in range(3)]

    def taken(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
        return q[::-1, ::-1], k[:, ::2, ::-1], v[:, ::-2]

    q, k, v = taken(*whole)
    check(q, k, v, on_device=taken(*map(amdattn.asarray, whole)))


@pytest.mark.parametrize("scale", [-0.25, -3.0, 0.0, 1e-30, 0.5, 1.0, 8.0, 1e3])
def test_softmax_scale(scale: float) -> None:
    q, k, v = operands(66, 150, heads=(2, 1))
    _, lse = check(q, k, v, scale=scale)
    if scale == 0.0:
        np.testing.assert_allclose(lse, np.log(150.0), rtol=1e-6)


def special_operands(where: str, value: float) -> tuple[Array, Array, Array]:
    """Operands with `value` planted in the first and the last tile of one of them."""
    q, k, v = operands(140, 150, heads=(2, 2))
    x = {"q": q, "k": k, "v": v}[where]
    for row, head, column in ((0, 0, 0), (77, 1, 64), (139, 1, 127)):
        x[0, row, head, column] = value
    return q, k, v


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_nan_and_inf(where: str, value: float) -> None:
    out, lse = check(*special_operands(where, value))
    assert not np.isfinite(out.astype(np.float32)).all()
    if where == "v":
        assert np.isfinite(lse).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_infinities_of_one_row(sign: float) -> None:
    """Against keys of one sign an infinity in q gives a row of +inf (NaN) or of -inf scores."""
    q, k, v = operands(129, 130)
    k = (sign * np.abs(k.astype(np.float32))).astype(ml_dtypes.bfloat16)
    q[0, 3, 0, 5], q[0, 128, 0, 9] = np.inf, -np.inf
    out, lse = check(q, k, v)
    masked, poisoned = (128, 3) if sign > 0 else (3, 128)
    assert (out[0, masked] == 0).all() and lse[0, 0, masked] == -np.inf
    assert np.isnan(out[0, poisoned].astype(np.float32)).all() and np.isnan(lse[0, 0, poisoned])


@pytest.mark.parametrize("num_masked", [1, 64, 100, 129, 130])
def test_keys_of_minus_infinity(num_masked: int) -> None:
    """Masked from outside: the first `num_masked` of 130 keys score -inf in every row."""
    q, k, v = operands(40, 130)
    q[..., 0] = 1.0
    k[:, :num_masked, :, 0] = -np.inf
    out, lse = check(q, k, v)
    if num_masked == 130:
        assert (out == 0).all() and (lse == -np.inf).all()
    else:
        kept, kept_lse = run(q, k[:, num_masked:], v[:, num_masked:])
        # The tiles fall otherwise, so the roundings do as well.
        np.testing.assert_allclose(out.astype(float), kept.astype(float), atol=0.02, rtol=0.02)
        np.testing.assert_allclose(lse, kept_lse, atol=1e-5)


@pytest.fixture
def restored_options() -> Iterator[None]:
    yield
    amdattn.virtual.set_option("seed", 0)
    amdattn.virtual.set_option("threads", 0)


@pytest.mark.parametrize("shape", [(129, 200, 1, (4, 2)), (300, 65, 1, (1, 1))])
def test_bits_repeat(restored_options: None, shape: tuple[int, int, int, tuple[int, int]]) -> None:
    """Whatever the order of waves and workgroups, and from run to run."""
    q, k, v = operands(*shape)
    results = set()
    for threads, seed in [*itertools.product((1, 2), (0, 1, 2)), (0, 0), (0, 0)]:
        amdattn.virtual.set_option("threads", threads)
        amdattn.virtual.set_option("seed", seed)
        out, lse = run(q, k, v)
        results.add((out.tobytes(), lse.tobytes()))
    assert len(results) == 1


@pytest.mark.parametrize("axis", ["seq", "head"])
def test_offsets_beyond_4_gib(axis: str) -> None:
    """Rows, or heads, 2**29 bytes and more apart: the last lie 5 GiB and more behind the first."""
    seqlen, heads = (11, 1) if axis == "seq" else (3, 11)
    q, k, v = (normal(i, 1, seqlen, heads, HEAD_DIM) for i in range(3))
    far = 2**28 + 8 * HEAD_DIM
    strides = (0, far, HEAD_DIM, 1) if axis == "seq" else (0, HEAD_DIM, far, 1)
    memory = amdattn.empty((11 * far,))
    dq, dk, dv, do = (placed(memory, q.shape, strides, 4096 * i) for i in range(4))
    assert dq.view().extent()[1] - dq.address > 5 * 2**30
    device = runtime.get()

    def upload(array: amdattn.DeviceArray, x: Array) -> None:
        for row, head in np.ndindex(seqlen, heads):
            part = np.ascontiguousarray(x[0, row, head])
            device.upload(array[0, row, head].address, part.ctypes.data, part.nbytes)
            amdattn.synchronize()

    for array, x in ((dq, q), (dk, k), (dv, v), (do, np.full(q.shape, POISON, np.uint16))):
        upload(array, x)
    lse = amdattn.empty((1, heads, seqlen), "float32")
    plan_for(q, k, "bshd", None).run(dq, dk, dv, do, lse=lse)
    out = np.stack([do[0, row, head].numpy() for row, head in np.ndindex(seqlen, heads)])
    near, near_lse = check(q, k, v)
    assert out.tobytes() == near.tobytes()
    assert lse.numpy().tobytes() == near_lse.tobytes()


@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_kv", "scale"),
    [(64, 1, None), (128, 64, None), (65, 300, None), (64, 1024, None), (128, 129, 1.0)],
)
def test_error_statistics(seqlen_q: int, seqlen_kv: int, scale: float | None) -> None:
    q, k, v = operands(seqlen_q, seqlen_kv, heads=(2, 1))
    out, lse = run(q, k, v, scale=scale)
    expected, expected_lse = attention(q, k, v, scale)
    np.testing.assert_allclose(lse, expected_lse, rtol=MAX_LSE_ERROR, atol=MAX_LSE_ERROR)
    error = out.astype(np.float64) - expected
    rms = np.sqrt(np.mean(expected**2))
    assert np.sqrt(np.mean(error**2)) <= MAX_RMS * rms
    # Rounding to nearest even has no bias: the mean is that of as many independent errors.
    assert abs(error.mean()) <= 6 * MAX_RMS * rms / np.sqrt(error.size)
