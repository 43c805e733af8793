"""Products of operands that are stored by k: what they read, and the public function."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from amdattn.errors import UnsupportedProblem
from amdattn.ops.gemm import grids
from amdattn.ops.gemm.problem import LAYOUTS, GemmProblem
from tests.support.gemm_family import KERNELS, Array, Call, operands, planned

OTHERS = [layout for layout in LAYOUTS if layout != "nt"]
ANY = [row.name for row in KERNELS if row.name.endswith("_any") and row.accepts["layout"] != "nt"]
TILES = [
    row.name
    for row in KERNELS
    if grids.has_windows(row) and row.accepts["layout"] != "nt" and row.dtype == "bfloat16"
]


def apart(x: Array, further: int) -> Any:
    """On the device, rows so much further apart; what lies between and beyond them is NaN."""
    wide = np.full((x.shape[0] + 2, x.shape[1] + further), np.nan, x.dtype)
    wide[1:-1, : x.shape[1]] = x
    return amdattn.asarray(wide)[1:-1, : x.shape[1]]


def test_every_layout_has_members_of_both_kinds() -> None:
    assert len(ANY) == 2 * len(OTHERS) and len(TILES) == 3 * len(OTHERS)


@pytest.mark.parametrize("name", ANY)
def test_any_sizes_and_parts(name: str) -> None:
    for m, n, k in ((1, 1, 1), (3, 5, 7), (17, 33, 129), (35, 50, 515)):
        for splits in (1, 3):
            if k > splits * 128 or splits == 1:
                Call(m, n, k, name, {"split_k": splits}).check()
    for activation in ("silu", "gelu_and_mul"):
        Call(19, 21, 131, name, {"activation": activation, "out_dtype": "float32"}).check()
    call = Call(21, 37, 1031, name, {"split_k": 3, "deterministic": False})
    assert call.plan().splits == 3
    call.check()


@pytest.mark.parametrize("name", TILES)
def test_nothing_around_is_used(name: str) -> None:
    """Rows of memory that end anywhere in a load, at any distance; NaN lies between them."""
    k_multiple = 8 if "_nn_" in name else 1
    tile_m, tile_n = (int(x) for x in name.split("_t")[-1].split("x"))
    for m, n, k in ((2, 2, 1), (tile_m + 2, 10, 63), (34, tile_n + 6, 66), (tile_m, tile_n, 193)):
        call = Call(m, n, k + -k % k_multiple, name)
        a, b, bias = call.inputs()
        stored_a, stored_b, _ = call.stored((a, b, bias))
        for further in (2, 8, 130):
            given = [apart(stored_a, further), apart(stored_b, further)]
            call.hold(call.run(*given, amdattn.asarray(bias)), a, b, bias)


@pytest.mark.parametrize("name", TILES)
def test_no_byte_outside_is_read(name: str) -> None:
    """Operands that end where their allocation does, in a row of memory that no load fits."""
    k_multiple = 8 if "_nn_" in name else 1
    for m, n, k in ((2, 2, 1), (130, 14, 67), (6, 262, 129)):
        with amdattn.virtual.check():
            Call(m, n, k + -k % k_multiple, name).check()


@pytest.mark.parametrize("activation", [None, "silu", "gelu_tanh_and_mul"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_public_function(layout: str, dtype: str, activation: str | None) -> None:
    """Arrays of the host and of the device, even and odd sizes; the plan takes what fits."""
    options = {"layout": layout, "dtype": dtype, "activation": activation, "alpha": 0.5}
    for m, n, k in ((5, 7, 9), (40, 36, 72), (150, 260, 200), (1, 300, 64)):
        call = Call(m, n, k, "", options)
        a, b, bias = call.inputs()
        stored = call.stored((a, b, bias))
        told = {"layout": layout, "activation": activation, "alpha": 0.5}
        of_host = amdattn.gemm(stored[0], stored[1], bias=stored[2], **told)
        call.hold(of_host, a, b, bias)
        on_device = [amdattn.asarray(x) for x in stored]
        result = amdattn.gemm(on_device[0], on_device[1], bias=on_device[2], **told)
        assert result.numpy().tobytes() == of_host.tobytes()
        out = amdattn.empty((m, n), "float32")
        assert amdattn.gemm(on_device[0], on_device[1], out=out, **told) is out
        wide = Call(m, n, k, "", {**options, "out_dtype": "float32"}, with_bias=False)
        wide.hold(out.numpy(), a, b)


def test_gradients_of_a_linear_layer() -> None:
    x, w, _ = operands(24, 40, 56)
    dy = operands(24, 40, 8)[2].reshape(1, 40) * x[:, :1]
    dx = amdattn.gemm(dy, w, layout="nn", out_dtype="float32")
    dw = amdattn.gemm(dy, x, layout="tn", out_dtype="float32")
    wide = [one.astype(np.float64) for one in (x, w, dy)]
    np.testing.assert_allclose(dx, wide[2] @ wide[1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dw, wide[2].T @ wide[0], rtol=1e-5, atol=1e-5)
    assert amdattn.gemm(x, w).tobytes() == amdattn.gemm_nt(x, w).tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_axes_without_elements(layout: str) -> None:
    for m, n, k in ((0, 4, 8), (4, 0, 8), (4, 6, 0), (3, 5, 0)):
        shape_a = (k, m) if layout == "tn" else (m, k)
        shape_b = (n, k) if layout == "nt" else (k, n)
        a, b = (np.zeros(shape, ml_dtypes.bfloat16) for shape in (shape_a, shape_b))
        bias = np.arange(n, dtype=np.float32).astype(ml_dtypes.bfloat16)
        out = amdattn.gemm(a, b, layout=layout, bias=bias)
        assert out.shape == (m, n)
        np.testing.assert_array_equal(out, np.broadcast_to(bias, (m, n)))


def test_what_is_refused() -> None:
    a, b = (np.zeros(shape, ml_dtypes.bfloat16) for shape in ((6, 8), (8, 10)))
    with pytest.raises(ValueError, match="layout='tt' must be one of 'nt', 'nn', 'tn'"):
        amdattn.gemm(a, b, layout="tt")
    with pytest.raises(ValueError, match="layout='tt' must be one of nt, nn, tn"):
        GemmProblem(1, 1, 8, layout="tt")
    with pytest.raises(ValueError, match=r"b has shape \(8, 10\); with a of \(6, 8\) .*\(n, 8\)"):
        amdattn.gemm(a, b)
    with pytest.raises(ValueError, match=r"b has shape \(8, 10\); with a of \(6, 8\) .*\(6, n\)"):
        amdattn.gemm(a, b, layout="tn")
    with pytest.raises(ValueError, match=r"b has shape \(8, 9\); .*\(8, 2 n\): .* of columns"):
        amdattn.gemm(a, b[:, :9], layout="nn", activation="silu_and_mul")
    with pytest.raises(UnsupportedProblem, match="split_k"):
        amdattn.plan_gemm(64, 64, 512, device="MI300X", layout="nn", split_k=5000)


class Overlapping:
    """64 rows of 32, two elements apart, of device memory."""

    def __init__(self, flat: Any) -> None:
        self._kept = flat
        self.__cuda_array_interface__ = {
            **{"shape": (64, 32), "strides": (4, 2), "typestr": "<f2", "version": 3},
            "data": (flat.address, False),
        }


def test_rows_of_memory_that_overlap() -> None:
    """By the kernel that loads single elements; the plan of another one says what it needs."""
    flat, a = operands(1, 1, 200, "float16")[0][0], operands(48, 1, 64, "float16")[0]
    b = np.lib.stride_tricks.as_strided(flat, (64, 32), (4, 2))
    given = amdattn.asarray(a), Overlapping(amdattn.asarray(flat))
    out = amdattn.gemm(*given, layout="nn", out_dtype="float32").numpy()
    Call(48, 32, 64, "", {"dtype": "float16", "out_dtype": "float32"}).hold(out, a, b.T)
    plan = planned(GemmProblem(48, 32, 64, "float16", layout="nn"), "gemm_nn_fp16_t128x128")
    with pytest.raises(ValueError, match=r"row stride 2, which must be at least 32.*aligned=False"):
        plan.run(*given)


@pytest.mark.parametrize("chip", ["MI300X", "MI355X"])
def test_plans(chip: str) -> None:
    """Tiles where what is stored by k is even, and fills some CUs; else single elements."""
    for layout, m in itertools.product(OTHERS, (256, 4096)):
        plan = amdattn.plan_gemm(m, 4096, 4096, device=chip, layout=layout)
        assert grids.has_windows(plan.kernel) and f"gemm_{layout}_" in plan.kernel.name
        odd = amdattn.plan_gemm(m, 4095, 4096, device=chip, layout=layout)
        assert odd.kernel.name == f"gemm_{layout}_bf16_any"
    assert grids.has_windows(amdattn.plan_gemm(2048, 4096, 63, device=chip, layout="tn").kernel)
    for layout, m, n, k in itertools.product(OTHERS, (16, 128), (64, 128), (2048, 16384)):
        few = amdattn.plan_gemm(m, n, k, device=chip, layout=layout)
        assert few.kernel.name == f"gemm_{layout}_bf16_any" and few.splits > 1
    problem = amdattn.plan_gemm(64, 64, 64, device=chip, layout="tn").problem
    assert problem.text.startswith("gemm_tn bfloat16") and problem.brief.endswith(" tn")
