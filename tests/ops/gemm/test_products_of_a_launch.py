"""Several products of one launch: batches, and groups of rows that only the device knows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.device import manifest
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.plans import plan_gemm
from tests.ops.gemm.test_addends import f64, holds

BF16 = ml_dtypes.bfloat16


def some(*shape: int) -> Any:
    """Normally distributed."""
    return np.random.default_rng(shape).standard_normal(shape, np.float32).astype(BF16)


def operands(size: tuple[int, int, int, int], layout: str) -> tuple[Any, Any]:
    """Of a batch, as a layout stores them."""
    batch, m, n, k = size
    a = some(batch, k, m) if layout == "tn" else some(batch, m, k)
    return a, some(batch, n, k) if layout == "nt" else some(batch, k, n)


@pytest.mark.parametrize("layout", ["nt", "nn", "tn"])
@pytest.mark.parametrize("size", [(1, 2, 8, 8), (3, 130, 72, 136), (9, 64, 66, 40)], ids=str)
def test_a_batch_is_its_products(size: tuple[int, int, int, int], layout: str) -> None:
    """Bit for bit those of launches of one."""
    batch, m, n, _k = size
    a, b = operands(size, layout)
    bias, residual = some(batch, n), some(batch, m, n)
    found = amdattn.gemm(a, b, layout=layout, bias=bias, residual=residual)
    assert found.shape == (batch, m, n)
    for i in range(batch):
        one = amdattn.gemm(
            *(a[i : i + 1], b[i : i + 1]),
            layout=layout,
            bias=bias[i : i + 1],
            residual=residual[i : i + 1],
        )
        assert one.tobytes() == found[i].tobytes()
    by_rows = [f64(a).swapaxes(1, 2) if layout == "tn" else f64(a)]
    by_rows += [f64(b).swapaxes(1, 2) if layout == "nt" else f64(b)]
    holds(found, by_rows[0] @ by_rows[1] + f64(bias)[:, None] + f64(residual))


@pytest.mark.parametrize("layout", ["nt", "nn", "tn"])
@pytest.mark.parametrize("size", [(3, 1, 1, 1), (2, 5, 17, 65), (5, 33, 19, 131)], ids=str)
def test_a_batch_of_any_sizes(size: tuple[int, int, int, int], layout: str) -> None:
    """One launch, bit for bit the products alone, by the same kernel; nothing beside is written."""
    batch, m, n, _k = size
    a, b = operands(size, layout)
    bias, c = some(batch, n), some(batch, m, n)
    options = {"layout": layout, "beta": -0.5, "activation": "silu"}
    held = amdattn.asarray(np.full((batch + 2, m, n), np.nan, np.float32).astype(BF16))
    on_device = {"bias": amdattn.asarray(bias), "c": amdattn.asarray(c)}
    with amdattn.virtual.check():
        amdattn.gemm(*map(amdattn.asarray, (a, b)), out=held[1:-1], **on_device, **options)
    whole = held.numpy()
    assert np.isnan(f64(whole[[0, -1]])).all()
    by_rows = f64(a).swapaxes(1, 2) if layout == "tn" else f64(a)
    of_b = f64(b).swapaxes(1, 2) if layout == "nt" else f64(b)
    x = by_rows @ of_b + f64(bias)[:, None] - 0.5 * f64(c)
    holds(whole[1:-1], x / (1 + np.exp(-x)))
    for i in range(batch):
        own = slice(i, i + 1)
        alone = amdattn.gemm(a[own], b[own], bias=bias[own], c=c[own], **options)
        assert alone.tobytes() == whole[1 + i].tobytes()
    gated = amdattn.gemm(a, b, layout=layout) if n % 2 else None
    if gated is not None:
        holds(gated, by_rows @ of_b)


def test_a_batch_of_8_bits_of_any_length() -> None:
    """Scales and bias of each product, results of every type; rows shared by all."""
    arch = amdattn.device_props().architecture
    element = as_dtype(arch.fp8).numpy()
    a, b = (some(4, rows, 45).astype(np.float32).astype(element) for rows in (18, 10))
    scale_a, scale_b = (np.exp2(some(4, rows).astype(np.float32)) for rows in (18, 10))
    exact = (f64(a) * scale_a[..., None]) @ (f64(b) * scale_b[..., None]).swapaxes(1, 2)
    for out_dtype in ("bfloat16", "float32"):
        bias = np.linspace(-2, 2, 40).reshape(4, 10).astype(as_dtype(out_dtype).numpy())
        found = amdattn.gemm(a, b, scale_a=scale_a, scale_b=scale_b, bias=bias, out_dtype=out_dtype)
        holds(found, exact + f64(bias)[:, None])
    shared = np.broadcast_to(b[0], b.shape)
    holds(amdattn.gemm(a, shared, scale_a=scale_a), (f64(a) * scale_a[..., None]) @ f64(b[0]).T)


def test_a_batch_of_more_tiles_than_a_grid_has_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"^batch times tiles of m=80000 is n"):
        plan_gemm(17, 8, 9, device="MI300X", batch=40000)
    assert plan_gemm(16, 8, 9, device="MI300X", batch=40000).kernel.name.endswith("_any")


def test_batches_anywhere_in_memory() -> None:
    """Strides of the batch: 0, backwards, between rows; what lies between is left alone."""
    a, b = some(3, 70, 72), some(3, 40, 72)
    held = amdattn.asarray(np.full((70, 3, 48), np.nan, np.float32).astype(BF16))
    out = held.transpose(1, 0, 2)[:, :, :40] if hasattr(held, "transpose") else None
    x, y = amdattn.asarray(a), amdattn.asarray(b)
    found = amdattn.gemm(x, y) if out is None else amdattn.gemm(x, y, out=out)
    holds(found.numpy(), f64(a) @ f64(b).swapaxes(1, 2))
    shared = np.broadcast_to(b[0], b.shape)
    holds(amdattn.gemm(a, shared), f64(a) @ f64(b[0]).T)
    holds(amdattn.gemm(a[::-1], b), f64(a[::-1]) @ f64(b).swapaxes(1, 2))


def grouped(a: Any, b: Any, sizes: Any) -> Any:
    """In float64; NaN where nothing is written."""
    found, end = np.full((len(a), b.shape[1]), np.nan), 0
    for matrix, rows in zip(b, np.asarray(sizes).clip(0), strict=True):
        own = slice(end, min(end + int(rows), len(a)))
        found[own] = f64(a[own]) @ f64(matrix).T
        end = own.stop
    return found


SIZES = [
    ([5], 5, 24),
    ([0, 130, 0, 1, 129, 40, 0], 300, 136),
    ([0, 0, 0], 9, 24),
    ([256, 1, 255], 520, 72),
    ([3, 0] * 70 + [90], 300, 40),
]


@pytest.mark.parametrize(("sizes", "rows", "n"), SIZES, ids=["1", "7", "none", "256", "141"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_groups(sizes: list[int], rows: int, n: int, dtype: Any) -> None:
    """Each with its own matrix, on the host and the device; the rest of out is as it was."""
    a, b = some(rows, 72), some(len(sizes), n, 72)
    wanted = grouped(a, b, sizes)
    out = np.full((rows, n), np.nan, np.float32).astype(BF16)
    given = np.array(sizes, dtype)
    assert amdattn.grouped_gemm(a, b, given, out) is out
    assert (np.isnan(f64(out)) == np.isnan(wanted)).all()
    if sum(sizes):
        holds(np.nan_to_num(f64(out)), np.nan_to_num(wanted))
    on_device = [amdattn.asarray(x) for x in (a, b, given)]
    again = amdattn.asarray(np.full((rows, n), np.nan, np.float32).astype(BF16))
    with amdattn.virtual.check():
        amdattn.grouped_gemm(*on_device, again)
    assert again.numpy().tobytes() == out.tobytes()


@pytest.mark.parametrize(
    "sizes",
    [[-5, 40, 100], [2**31 - 1, 7, -(2**31)], [100, 2**31 - 1, 2**31 - 1], [2**31 - 1] * 3],
    ids=str,
)
@pytest.mark.parametrize("groups", [3, 90])
def test_sizes_on_the_device_reach_no_other_memory(sizes: list[int], groups: int) -> None:
    """Whatever they are: less than none is none, and rows behind the last one are not there."""
    sizes = sizes + [2**31 - 1] * (groups - len(sizes))
    a, b = some(200, 64), some(groups, 24, 64)
    out = amdattn.asarray(np.full((200, 24), np.nan, np.float32).astype(BF16))
    with amdattn.virtual.check():
        amdattn.grouped_gemm(*(amdattn.asarray(x) for x in (a, b, np.array(sizes, np.int32))), out)
    wanted = grouped(a, b, sizes)
    assert (np.isnan(f64(out.numpy())) == np.isnan(wanted)).all()
    holds(np.nan_to_num(f64(out.numpy())), np.nan_to_num(wanted))


@pytest.mark.parametrize(("sizes", "rows", "n"), SIZES, ids=["1", "7", "none", "256", "141"])
def test_groups_of_k(sizes: list[int], rows: int, n: int) -> None:
    """Products of each group's rows of both operands, 0 of none; on the host and the device."""
    a, b, bias = some(rows, 40), some(rows, n), some(n)
    residual = some(len(sizes), 40, n)
    ends = np.cumsum(sizes)
    wanted = f64(residual) + f64(bias)
    for i, end in enumerate(ends):
        own = slice(end - sizes[i], end)
        wanted[i] += 0.5 * f64(a[own]).T @ f64(b[own])
    options: dict[str, Any] = {"layout": "tn", "alpha": 0.5}
    found = amdattn.grouped_gemm(a, b, sizes, bias=bias, residual=residual, **options)
    holds(found, wanted)
    behind = np.array([np.nan], BF16)  # rows of no group are not read
    a[sum(sizes) :], b[sum(sizes) :] = behind, behind
    given = [amdattn.asarray(x) for x in (a, b, np.array(sizes, np.int32))]
    more = {"bias": amdattn.asarray(bias), "residual": amdattn.asarray(residual)}
    with amdattn.virtual.check():
        again = amdattn.grouped_gemm(*given, **more, **options)
    assert again.numpy().tobytes() == found.tobytes()
    for i, end in enumerate(ends[:9]):  # of one group alone the same bits
        own = slice(end - sizes[i], end)
        alone = amdattn.gemm(a[own], b[own], bias=bias, residual=residual[i], split_k=1, **options)
        holds(alone, f64(found[i]))


@pytest.mark.parametrize("sizes", [[-5, 40, 100], [2**31 - 1, 7, -(2**31)], [9] * 90], ids=str)
def test_sizes_of_k_on_the_device_reach_no_other_memory(sizes: list[int]) -> None:
    """Whatever they are: less than none is none, and rows behind the last one are not there."""
    a, b = some(200, 24), some(200, 40)
    given = (amdattn.asarray(x) for x in (a, b, np.array(sizes, np.int32)))
    with amdattn.virtual.check():
        found = amdattn.grouped_gemm(*given, layout="tn").numpy()
    ends = np.minimum(np.cumsum(np.maximum(sizes, 0).astype(np.int64)), 200)
    first = 0
    for i, end in enumerate(ends):
        holds(found[i], f64(a[first:end]).T @ f64(b[first:end]))
        first = end


def test_everything_of_a_group() -> None:
    """Biases, gates, residuals in place, rows of b by k, scales of 8-bit rows."""
    sizes = np.array([60, 0, 140, 17], np.int32)
    a, b, bias, residual = some(217, 64), some(4, 48, 64), some(4, 48), some(217, 24)
    arch = amdattn.device_props().architecture
    found = amdattn.grouped_gemm(
        a, b, sizes, activation="silu_and_mul", bias=bias, residual=residual
    )
    ends, wanted = np.cumsum(sizes), []
    for i, end in enumerate(ends):
        x = f64(a[end - sizes[i] : end]) @ f64(b[i]).T + f64(bias[i])
        wanted.append(x[:, :24] / (1 + np.exp(-x[:, :24])) * x[:, 24:])
    holds(found, np.concatenate(wanted) + f64(residual))
    by_k = np.ascontiguousarray(b.swapaxes(1, 2))
    one, other = (
        amdattn.grouped_gemm(a, x, sizes, layout=layout) for x, layout in ((b, "nt"), (by_k, "nn"))
    )
    holds(one, f64(other))
    narrow, scale = amdattn.quantize_fp8(a, dtype=arch.fp8)
    flat, scale_b = amdattn.quantize_fp8(b.reshape(-1, 64), dtype=arch.fp8)
    found = amdattn.grouped_gemm(
        *(narrow, flat.reshape(b.shape), sizes),
        scale_a=scale,
        scale_b=scale_b.reshape(4, 48),
    )
    exact = [f64(narrow) * f64(scale), f64(flat).reshape(b.shape) * f64(scale_b).reshape(4, 48, 1)]
    holds(found, grouped(*exact, sizes))


def test_scales_of_blocks_of_groups_and_batches() -> None:
    """As those of one product, of each its own."""
    arch = amdattn.device_props().architecture
    rng, k = np.random.default_rng(0), 272
    a, b = (
        some(*shape, k).astype(np.float32).astype(as_dtype(arch.fp8).numpy())
        for shape in ((3, 200), (3, 264))
    )
    scale_a = rng.uniform(0.5, 2, (3, 200, 3)).astype(np.float32)
    scale_b = rng.uniform(0.5, 2, (3, 3, 3)).astype(np.float32)
    found = amdattn.gemm(a, b, scale_a=scale_a, scale_b=scale_b)
    sizes = np.array([130, 0, 61], np.int32)
    rows, scale_of_rows = a[0], scale_a[0]
    given = rows[:191], b, sizes
    of_groups = amdattn.grouped_gemm(*given, scale_a=scale_of_rows[:191], scale_b=scale_b)
    on_device = [amdattn.asarray(x) for x in (*given, scale_of_rows[:191], scale_b)]
    with amdattn.virtual.check():
        again = amdattn.grouped_gemm(*on_device[:3], scale_a=on_device[3], scale_b=on_device[4])
    assert again.numpy().tobytes() == of_groups.tobytes()
    for i in range(3):
        one = amdattn.gemm(a[i], b[i], scale_a=scale_a[i], scale_b=scale_b[i])
        assert one.tobytes() == found[i].tobytes()
        own = slice(sizes[:i].sum(), sizes[: i + 1].sum())
        if sizes[i]:
            alone = amdattn.gemm(rows[own], b[i], scale_a=scale_of_rows[own], scale_b=scale_b[i])
            assert alone.tobytes() == of_groups[own].tobytes()


@pytest.mark.parametrize("layout", ["nt", "nn", "tn"])
def test_sums_of_nothing(layout: str) -> None:
    """Of batches and groups; and results without elements."""
    a = some(3, 0, 40) if layout == "tn" else some(3, 40, 0)
    b = some(3, 24, 0) if layout == "nt" else some(3, 0, 24)
    bias = some(3, 24)
    found = amdattn.gemm(a, b, layout=layout, bias=bias)
    assert (f64(found) == f64(bias)[:, None]).all()
    if layout == "tn":
        found = amdattn.grouped_gemm(a[0], b[0], [0, 0], layout=layout, bias=bias[0])
        assert (f64(found) == f64(bias[0])).all() and found.shape == (2, 40, 24)
        assert amdattn.grouped_gemm(some(9, 0), some(9, 8), [4], layout=layout).shape == (1, 0, 8)
    else:
        found = amdattn.grouped_gemm(a[0], b, [20, 0, 20], layout=layout, bias=bias)
        assert (f64(found) == f64(bias).repeat([20, 0, 20], 0)).all()
        for rows, n in ((0, 24), (40, 0)):
            x = some(rows, 64)
            matrices = some(3, n, 64) if layout == "nt" else some(3, 64, n)
            found = amdattn.grouped_gemm(x, matrices, [0, 0, 0], layout=layout)
            assert found.shape == (rows, n)
    for batch, m, n in ((0, 8, 16), (3, 0, 16), (3, 8, 0)):
        x = some(batch, 64, m) if layout == "tn" else some(batch, m, 64)
        y = some(batch, n, 64) if layout == "nt" else some(batch, 64, n)
        assert amdattn.gemm(x, y, layout=layout).shape == (batch, m, n)


def test_a_row_does_not_depend_on_other_groups() -> None:
    """Equal bits whatever group comes before, also one of NaN."""
    a, b = some(260, 72), some(3, 40, 72)
    whole = amdattn.grouped_gemm(a, b, [100, 150, 10])
    a[:100] = np.nan
    again = amdattn.grouped_gemm(a, b, [100, 150, 10])
    assert again[100:].tobytes() == whole[100:].tobytes()
    alone = amdattn.grouped_gemm(a[100:250], b[1:2], [150])
    assert alone.tobytes() == whole[100:250].tobytes()


def test_what_is_refused() -> None:
    """By name, with what is allowed."""
    a, b = some(10, 64), some(3, 24, 64)
    for sizes, message in (
        ([5, -1, 2], r"group_sizes\[1\]=-1 must be in 0..10, the rows of a"),
        ([5, 5, 1], r"the sum of group_sizes is 11; it may be at most 10, the rows of a"),
        ([5, 5], r"group_sizes has shape \(2,\) and dtype int64; it must be int32 or int64 of"),
    ):
        with pytest.raises(ValueError, match=message):
            amdattn.grouped_gemm(a, b, np.array(sizes))
    with pytest.raises(ValueError, match=r"b has shape \(24, 64\); it must have 3 dimensions"):
        amdattn.grouped_gemm(a, b[0], [10])
    with pytest.raises(ValueError, match="layout='tt' must be one of 'nt', 'nn', 'tn'"):
        amdattn.grouped_gemm(a, b, [10, 0, 0], layout="tt")
    with pytest.raises(ValueError, match=r"b has shape \(3, 24, 64\); with a of \(10, 64\)"):
        amdattn.grouped_gemm(a, b, [10, 0, 0], layout="tn")
    with pytest.raises(ValueError, match=r"group_sizes has shape \(1, 2\); it must be \(groups,\)"):
        amdattn.grouped_gemm(a, a, np.array([[5, 5]]), layout="tn")
    with pytest.raises(
        ValueError, match="the sum of group_sizes is 11; it may be at most 10, the rows"
    ):
        amdattn.grouped_gemm(a, a, [5, 6], layout="tn")
    with pytest.raises(ValueError, match=r"b has shape \(3, 24, 64\); with a of \(2, 10, 64\)"):
        amdattn.gemm(some(2, 10, 64), b)
    with pytest.raises(amdattn.UnsupportedProblem, match="k=63"):
        amdattn.grouped_gemm(some(10, 63), some(3, 24, 63), [10, 0, 0])
    with pytest.raises(
        amdattn.UnsupportedProblem, match=r"n=23 is not built \(have multiples of 2"
    ):
        amdattn.grouped_gemm(a, some(3, 64, 23), [10, 0, 0], layout="nn")
    with pytest.raises(TypeError, match="group_sizes is None; it must be an array"):
        amdattn.grouped_gemm(a, b, None)


def test_grids_of_groups_hold_what_there_may_be() -> None:
    """However the rows are spread."""
    for m, groups in ((1, 5), (127, 3), (300, 64), (129, 1)):
        plan = plan_gemm(m, 64, 64, device="MI300X", groups=groups)
        (launch,) = plan.launches
        tile, tiles_n = launch.kernel.tile["m"], -(-64 // launch.kernel.tile["n"])
        most = max(
            sum(-(-rows // tile) for rows in sizes) for sizes in _spread(m, min(groups, m), tile)
        )
        assert launch.grid[0] >= most * tiles_n
    assert all("max_products" in row.accepts for row in manifest.kernels() if row.op == "gemm_nt")


def _spread(m: int, groups: int, tile: int) -> Any:
    """Ways to give so many rows to so many groups, the one with the most tiles among them."""
    ones = [1] * (groups - 1)
    yield [*ones, m - len(ones)]
    rng = np.random.default_rng(m)
    for _ in range(50):
        ends = np.sort(rng.integers(0, m + 1, groups - 1))
        yield np.diff(ends, prepend=0, append=m).tolist()
