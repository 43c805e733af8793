"""Products with scales of blocks as callers make them: shapes, strides, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import amdattn
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.problem import BLOCK, BLOCKS
from amdattn.ops.gemm.scales import MAX_STEP

Array = npt.NDArray[Any]
PROPS = amdattn.device_props()
FP8, BF8 = (as_dtype(name).numpy() for name in (PROPS.architecture.fp8, PROPS.architecture.bf8))
KINDS: dict[str, Any] = {"scale_a": BLOCKS, "scale_b": BLOCKS}


def inputs(m: int, n: int, k: int) -> tuple[Array, Array, Array, Array]:
    """a, b, and scales of their blocks, as two powers of 2, so that products are exact."""
    rng = np.random.default_rng([m, n, k])
    a, b = (rng.standard_normal(s, np.float32).astype(FP8) for s in ((m, k), (n, k)))
    blocks = -(-k // BLOCK)
    of_a, of_b = (
        np.exp2(rng.integers(-2, 3, s)).astype("f4")
        for s in ((m, blocks), (-(-n // BLOCK), blocks))
    )
    return a, b, of_a, of_b


def exact(a: Array, b: Array, of_a: Array, of_b: Array) -> Array:
    k = a.shape[1]
    wide_a = a.astype("f8") * of_a.repeat(BLOCK, 1)[:, :k]
    found: Array = (
        wide_a @ (b.astype("f8") * of_b.repeat(BLOCK, 0).repeat(BLOCK, 1)[: len(b), :k]).T
    )
    return found


def near(out: Array, best: Array) -> None:
    assert np.abs(out.astype("f8") - best).max() <= 1.1 * 2.0**-8 * np.abs(best).max()


@pytest.mark.parametrize("k", [16, 128, 144, 400])
def test_scales_in_every_place(k: int) -> None:
    """On the host of any strides, on the device as they are; by `gemm` as by `gemm_nt`."""
    a, b, of_a, of_b = inputs(70, 140, k)
    best = exact(a, b, of_a, of_b)
    near(amdattn.gemm_nt(a, b, scale_a=of_a, scale_b=of_b), best)
    by_columns = (np.asfortranarray(of_a), np.repeat(of_b, 3, 1)[:, ::3])
    near(amdattn.gemm(a, b, scale_a=by_columns[0], scale_b=by_columns[1]), best)
    on_device = [amdattn.asarray(x) for x in (a, b, of_a, of_b)]
    out = amdattn.gemm_nt(*on_device[:2], scale_a=on_device[2], scale_b=on_device[3])
    near(out.numpy(), best)


def test_scales_of_one_row_and_of_one_column() -> None:
    for m, n in ((1, 300), (5, 2), (1, 1), (3, 128)):
        operands = inputs(m, n, 256)
        a, b, of_a, of_b = operands
        near(amdattn.gemm_nt(a, b, scale_a=of_a, scale_b=of_b), exact(*operands))


def test_plans_take_them() -> None:
    operands = inputs(8, 40, 400)
    a, b, of_a, of_b = operands
    plan = amdattn.plan_gemm(8, 40, 400, device=PROPS, dtype=PROPS.architecture.fp8, **KINDS)
    near(plan.run(a, b, scale_a=of_a, scale_b=of_b), exact(*operands))
    assert "scale_a=block scale_b=block" in plan.explain()
    with pytest.raises(ValueError, match="scale_b"):
        plan.run(a, b, scale_a=of_a)
    with pytest.raises(ValueError, match=r"scale_a has shape \(8, 3\); this call needs \(8, 4\)"):
        plan.run(a, b, scale_a=of_a[:, :3], scale_b=of_b)


def test_nothing_along_an_axis() -> None:
    a, b, of_a, of_b = inputs(5, 140, 256)
    assert amdattn.gemm_nt(a[:0], b, scale_a=of_a[:0], scale_b=of_b).shape == (0, 140)
    out = amdattn.gemm_nt(a[:, :0], b[:, :0], scale_a=of_a[:, :0], scale_b=of_b[:, :0])
    assert out.shape == (5, 140) and not out.astype("f4").any()


def test_other_calls_are_refused_by_name() -> None:
    a, b, of_a, of_b = inputs(70, 140, 256)
    rows, narrow = np.ones((70, 1), "f4"), np.ones((2, 2, 1), "f4")
    e5m2 = b.astype("f4").astype(BF8)
    apart = amdattn.empty((70, 4), "float32")
    for options, error, text in (
        (
            {"scale_a": rows, "scale_b": of_b},
            ValueError,
            r"scale_a has shape \(70, 1\); with scale_b",
        ),
        (
            {"scale_a": of_a},
            ValueError,
            r"scale_b=None must be \(2, 2\), with scale_a of \(70, 2\)",
        ),
        (
            {"scale_b": of_b},
            ValueError,
            r"scale_a=None must be \(70, 2\), with scale_b of \(2, 2\)",
        ),
        (
            {"scale_a": of_a, "scale_b": narrow},
            ValueError,
            r"scale_b has shape \(2, 2, 1\); with sc",
        ),
        (
            {"scale_a": of_a.T, "scale_b": of_b},
            ValueError,
            r"scale_a has shape \(2, 70\); with scal",
        ),
        ({"scale_a": of_a.astype("f8"), "scale_b": of_b}, ValueError, "scale_a has dtype float64"),
        (
            {"scale_a": apart[:, ::2], "scale_b": of_b},
            ValueError,
            "scale_a has shape .* stride of 1",
        ),
        ({"scale_a": of_a, "scale_b": of_b, "split_k": 2}, NotImplementedError, "split_k=2 is not"),
        ({"scale_a": of_a, "scale_b": of_b, "b": e5m2}, NotImplementedError, "b_dtype=.*e5m2"),
    ):
        call: dict[str, Any] = {"a": a, "b": b, **options}
        with pytest.raises(error, match=text):
            amdattn.gemm_nt(**call)


def test_rows_of_scales_that_are_too_far_apart() -> None:
    a, b, _, of_b = (amdattn.asarray(x) for x in inputs(2, 16, 256))
    far = amdattn.empty((2, MAX_STEP + 1), "float32")[:, :2]
    with pytest.raises(
        ValueError, match=f"row stride {MAX_STEP + 1}, which must be in 0..{MAX_STEP}"
    ):
        amdattn.gemm_nt(a, b, scale_a=far, scale_b=of_b)
