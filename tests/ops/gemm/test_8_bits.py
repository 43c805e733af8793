"""Products of 8-bit operands as callers make them: types, scales, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import amdattn
from amdattn.dtypes import as_dtype

Array = npt.NDArray[Any]
PROPS = amdattn.device_props()
FP8, BF8 = (as_dtype(name).numpy() for name in (PROPS.architecture.fp8, PROPS.architecture.bf8))


def operand(rows: int, k: int, element: Any = FP8, seed: int = 0) -> Array:
    made: Array = np.random.default_rng([rows, k, seed]).standard_normal((rows, k), np.float32)
    return made.astype(element)


def exact(a: Array, b: Array, scale_a: Any = 1.0, scale_b: Any = 1.0) -> Array:
    found: Array = (a.astype("f8") * scale_a) @ (b.astype("f8") * scale_b).T
    return found


def near(out: Array, best: Array, bits: int = 8) -> None:
    assert np.abs(out.astype("f8") - best).max() <= 1.1 * 2.0**-bits * np.abs(best).max()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)], ids=str)
def test_one_scale_of_any_shape(shape: tuple[int, ...]) -> None:
    a, b = operand(5, 48), operand(40, 48)
    scale = np.full(shape, 0.25, np.float32)
    near(amdattn.gemm_nt(a, b, scale_a=scale), exact(a, b, 0.25))
    near(amdattn.gemm_nt(a, b, scale_b=scale, scale_a=scale), exact(a, b, 0.25, 0.25))


def test_scales_of_rows_in_every_place() -> None:
    """On the host of any strides, on the device as they are; a row, a column or neither."""
    a, b = operand(70, 48), operand(40, 48, BF8)
    of_a, of_b = (np.exp2(np.arange(n, dtype=np.float32) % 5) for n in (70, 40))
    best = exact(a, b, of_a[:, None], of_b[:, None])
    near(amdattn.gemm_nt(a, b, scale_a=of_a[:, None], scale_b=of_b[None, :]), best)
    apart = np.repeat(of_a, 3)[::3]
    near(amdattn.gemm_nt(a, b, scale_a=apart, scale_b=of_b), best)
    on_device = [amdattn.asarray(x) for x in (a, b, of_a.reshape(70, 1), of_b)]
    out = amdattn.gemm_nt(*on_device[:2], scale_a=on_device[2], scale_b=on_device[3])
    near(out.numpy(), best)


@pytest.mark.parametrize("bias_dtype", ["bfloat16", "float16", "float32"])
def test_bias_is_of_the_type_of_the_result(bias_dtype: str) -> None:
    a, b = operand(5, 48), operand(40, 48)
    bias = np.linspace(-3, 3, 40).astype(as_dtype(bias_dtype).numpy())
    out = amdattn.gemm_nt(a, b, bias=bias, out_dtype=bias_dtype)
    near(
        out,
        exact(a, b) + bias.astype("f8"),
        {"bfloat16": 8, "float16": 11, "float32": 20}[bias_dtype],
    )
    other = "float16" if bias_dtype != "float16" else "float32"
    with pytest.raises(ValueError, match=f"bias has dtype {bias_dtype}; this call needs {other}"):
        amdattn.gemm_nt(a, b, bias=bias, out_dtype=other)


def test_scales_that_are_no_usual_numbers() -> None:
    """0, infinite, NaN of any payload and denormal ones reach their rows, and no others."""
    a, b = operand(7, 64), np.abs(operand(9, 64).astype("f4")).astype(FP8)
    a = np.abs(a.astype("f4")).astype(FP8)
    scale = np.array([1, 0, np.inf, -np.inf, np.nan, 2.0**-140, 1], np.float32)
    scale.view(np.uint32)[4] = 0x7FFFFFFF
    for out_dtype in ("bfloat16", "float32"):
        out = amdattn.gemm_nt(a, b, scale_a=scale, out_dtype=out_dtype).astype("f8")
        with np.errstate(invalid="ignore"):
            best = exact(a, b) * scale.astype("f8")[:, None]
        assert (np.isnan(out) == np.isnan(best)).all() and np.isnan(out[4]).all()
        assert (out[[1, 2, 3]] == best[[1, 2, 3]]).all()
        near(out[[0, 6]], best[[0, 6]])
        assert np.abs(out[5] - best[5]).max() <= 2.0**-8 * best[5].max() + 2.0**-134


def test_every_number_of_the_types() -> None:
    """Each bit pattern times one, NaN and infinities in their places; -0 where there is one."""
    for element, other in ((FP8, BF8), (BF8, FP8), (FP8, FP8), (BF8, BF8)):
        a = np.zeros((256, 16), element)
        a[:, 3] = np.arange(256, dtype=np.uint8).view(element)
        b = np.zeros((1, 16), other)
        b[0, 3] = 1
        out = amdattn.gemm_nt(a, b, out_dtype="float32")[:, 0]
        best = a[:, 3].astype(np.float32)
        assert ((out == best) | (np.isnan(out) & np.isnan(best))).all()


def test_any_length_and_place_of_rows() -> None:
    """K of no multiple, and rows that begin and lie anywhere."""
    a, b = operand(5, 48), operand(40, 48, BF8)
    for k in (1, 40, 41):
        near(amdattn.gemm_nt(a[:, :k], b[:, :k]), exact(a[:, :k], b[:, :k]))
    on_device = amdattn.asarray(a)[:, 1:33], amdattn.asarray(b)[:, :32]
    scale = np.linspace(-1, 2, 40, dtype=np.float32)
    found = amdattn.gemm_nt(*on_device, scale_b=amdattn.asarray(scale)).numpy()
    near(found, exact(a[:, 1:33], b[:, :32], 1.0, scale[:, None]))
    odd = operand(5, 47), operand(40, 47)
    near(amdattn.gemm_nt(*map(amdattn.asarray, odd)).numpy(), exact(*odd))


def test_other_calls_are_refused_by_name() -> None:
    a, b, one = operand(5, 48), operand(40, 48), np.ones(1, np.float32)
    sixteen = a.astype("f4").astype(np.float16)
    for call, error, text in (
        (lambda: amdattn.gemm_nt(a, b[:, :40]), ValueError, "b has shape"),
        (lambda: amdattn.gemm_nt(a, sixteen), ValueError, "b_dtype='float16' must be"),
        (lambda: amdattn.gemm_nt(sixteen, a), ValueError, "b has dtype"),
        (lambda: amdattn.gemm_nt(sixteen, sixteen, scale_a=one), ValueError, "scale_a='tensor'"),
        (lambda: amdattn.gemm_nt(a, b, scale_b=np.ones(5, "f4")), ValueError, "scale_b has shape"),
        (
            lambda: amdattn.gemm_nt(a, b, scale_a=np.ones(5)),
            ValueError,
            "scale_a has dtype float64",
        ),
        (lambda: amdattn.gemm_nt(a, b, split_k=4097), NotImplementedError, "split_k=4097 is not b"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_nothing_along_an_axis() -> None:
    none = operand(0, 48), operand(40, 48)
    assert amdattn.gemm_nt(*none).shape == (0, 40)
    no_k = amdattn.gemm_nt(operand(3, 0), operand(4, 0), scale_a=np.ones(3, "f4"))
    assert no_k.dtype.name == "bfloat16" and not no_k.astype("f4").any()


def test_plans_say_what_they_take() -> None:
    chip = PROPS.name.split()[-1]
    text = amdattn.explain_gemm(
        2048, 4096, 4096, device=chip, dtype=PROPS.architecture.fp8, scale_a="row"
    )
    assert "scale_a=row" in text and "out_dtype=bfloat16" in text
    plan = amdattn.plan_gemm(8, 64, 64, device=chip, dtype=PROPS.architecture.fp8, scale_a="row")
    a, b = operand(8, 64), operand(64, 64)
    with pytest.raises(ValueError, match="scale_a"):
        plan.run(a, b)
    with pytest.raises(ValueError, match="scale_b"):
        plan.run(a, b, scale_a=np.ones(8, "f4"), scale_b=np.ones(1, "f4"))
    near(plan.run(a, b, scale_a=np.full(8, 2, np.float32)), exact(a, b, 2.0))


def test_plans_take_scales_of_the_shapes_that_calls_take() -> None:
    """Those of `quantize_fp8` among them, on the host and on the device."""
    a, b, scale = operand(8, 64), operand(40, 64), np.exp2(np.arange(8, dtype=np.float32))
    plan = amdattn.plan_gemm(8, 40, 64, device=PROPS, dtype=PROPS.architecture.fp8, scale_a="row")
    best = exact(a, b, scale[:, None])
    for shape in ((8,), (8, 1), (1, 8)):
        near(plan.run(a, b, scale_a=scale.reshape(shape)), best)
        on_device = [amdattn.asarray(x) for x in (a, b, scale.reshape(shape))]
        near(plan.run(*on_device[:2], scale_a=on_device[2]).numpy(), best)
    with pytest.raises(ValueError, match=r"^scale_a has shape \(1,\); this call needs \(8,\)"):
        plan.run(a, b, scale_a=np.ones((1, 1), np.float32))
    of_all = amdattn.plan_gemm(
        8, 40, 64, device=PROPS, dtype=PROPS.architecture.fp8, scale_b="tensor"
    )
    for shape in ((), (1,), (1, 1)):
        near(of_all.run(a, b, scale_b=np.full(shape, 2, np.float32)), exact(a, b, 2.0))


def test_scales_that_are_apart_on_the_device_are_refused() -> None:
    a, b = (amdattn.asarray(operand(rows, 64)) for rows in (8, 40))
    beside = amdattn.asarray(np.ones((8, 2), np.float32))[:, :1]
    text = r"^scale_a has shape \(8, 1\) and strides \(2, 1\) .* must follow each other"
    with pytest.raises(ValueError, match=text):
        amdattn.gemm_nt(a, b, scale_a=beside)
