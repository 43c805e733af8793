"""The kernels for scales of blocks: tiles that exist in part, ends of k, every end of a tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import amdattn
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.cases import GemmCase, expected
from amdattn.ops.gemm.problem import BLOCK, BLOCKS, GemmProblem
from tests.support.gemm_family import ENDS_OF_A_TILE, OF_BLOCKS, Call, planned

Array = npt.NDArray[Any]
NAMES = [row.name for row in OF_BLOCKS]
TILES = {row.name: (row.tile["m"], row.tile["n"]) for row in OF_BLOCKS}
ARCH = amdattn.device_props().architecture
FP8 = as_dtype(ARCH.fp8).numpy()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [16, 112, 128, 144, 256, 272, 384, 512, 528, 656, 1040])
def test_every_number_of_blocks(name: str, k: int) -> None:
    """One step, as many as scales are loaded for at once and more; the last block cut anywhere."""
    m, n = TILES[name]
    Call(m + 3, n - 5, k, name, with_bias=k % 32 == 0).check()


@pytest.mark.parametrize("name", NAMES)
def test_sizes_around_tiles(name: str) -> None:
    m, n = TILES[name]
    for further_m, further_n in ((0, 0), (1, 8), (-1, 9), (5, n + 1)):
        Call(m + further_m, n + further_n, 272, name).check()
    Call(1, 1, 400, name).check()
    Call(3 * m + 40, 1, 160, name).check()


@pytest.mark.parametrize("options", ENDS_OF_A_TILE, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_end_of_a_tile(name: str, options: dict[str, Any]) -> None:
    """Factors have blocks of their own, which begin within one of the gate's, too."""
    m, n = TILES[name]
    gated = str(options.get("activation")).endswith("_and_mul")
    for columns in (n // 2 + 32, 2 * n + 96) if gated else (n // 2 + 16, n // 2 + 13):
        Call(m // 2 + 7, columns, 400, name, options).check()


@pytest.mark.parametrize("name", NAMES)
def test_every_tile_is_made_once(name: str) -> None:
    m, n = TILES[name]
    for tiles_m, tiles_n in ((1, 9), (9, 1), (5, 3)):
        Call(tiles_m * m - 1, tiles_n * n - 8, 32, name, with_bias=False).check()


@pytest.mark.parametrize("name", NAMES)
def test_equal_bits_and_no_findings(name: str) -> None:
    m, n = TILES[name]
    for call in (
        Call(m + 3, n + 24, 1104, name),
        Call(70, 96, 272, name, {"activation": "silu_and_mul"}),
    ):
        call.hold_bits_and_checks(call.run())


def product(
    name: str, a: Array, b: Array, scale_a: Array, scale_b: Array
) -> tuple[Array, Array, Array]:
    """What the kernel makes in float32; what it must be; and by how much it may miss that."""
    problem = GemmProblem(
        *(len(a), len(b), a.shape[1], ARCH.fp8, "float32"),
        scale_a=BLOCKS,
        scale_b=BLOCKS,
    )
    inputs = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    out = planned(problem, name).run(a, b, scale_a=scale_a, scale_b=scale_b)
    with np.errstate(invalid="ignore", over="ignore"):
        best = expected(GemmCase(problem), inputs)["out"].values
    slack = 2.0**-16 * np.nanmax(np.where(np.isinf(best), np.nan, np.abs(best)), initial=0.0)
    return out.astype(np.float64), best, np.asarray(slack)


def operands(m: int, n: int, k: int) -> tuple[Array, Array, Array, Array]:
    """Positive ones, so that no infinities meet, and scales between 0.5 and 2."""
    rng = np.random.default_rng([m, n, k])
    a, b = (np.abs(rng.standard_normal(s, np.float32)).astype(FP8) for s in ((m, k), (n, k)))
    blocks = -(-k // BLOCK)
    of_a, of_b = (
        rng.uniform(0.5, 2, s).astype(np.float32) for s in ((m, blocks), (-(-n // BLOCK), blocks))
    )
    return a, b, of_a, of_b


@pytest.mark.parametrize("name", NAMES)
def test_scales_that_are_no_usual_numbers(name: str) -> None:
    """0, infinite, NaN of any payload and denormal ones reach their rows and blocks, no others."""
    a, b, of_a, of_b = operands(300, 260, 528)
    usual, *_ = product(name, a, b, of_a, of_b)
    of_a[3, 1], of_a[40, 4], of_a[299, 0], of_a[7, 2] = np.inf, -np.inf, np.nan, 2.0**-140
    of_a.view(np.uint32)[70, 3] = 0x7FFFFFFF
    of_a[9] = 0
    of_b[2, 2] = 0
    out, best, slack = product(name, a, b, of_a, of_b)
    assert (np.isnan(out) == np.isnan(best)).all()
    assert np.isnan(out[[70, 299]]).all() and (out[9] == 0).all()
    finite = np.isfinite(best)
    assert (np.isinf(out) == np.isinf(best)).all() and finite.sum() > 280 * 260
    assert (np.abs(out - best)[finite] <= slack).all()
    others = [row for row in range(300) if row not in (3, 7, 9, 40, 70, 299)]
    assert (out[others, :256] == usual[others, :256]).all(), "rows beside them are as without"
    of_b[1, 4] = np.nan
    out, best, _ = product(name, a, b, of_a, of_b)
    assert (np.isnan(out) == np.isnan(best)).all() and np.isnan(out[:, 128:256]).all()


@pytest.mark.parametrize("name", NAMES)
def test_an_infinite_scale_of_zeros_is_nan(name: str) -> None:
    """As products of float64 are."""
    a, b, of_a, of_b = operands(5, 7, 256)
    a[2, 128:] = 0
    of_a[2, 1] = np.inf
    out, best, _ = product(name, a, b, of_a, of_b)
    assert np.isnan(out[2]).all() and (np.isnan(out) == np.isnan(best)).all()


@pytest.mark.parametrize("name", NAMES)
def test_numbers_that_are_none(name: str) -> None:
    """NaN of e4m3 reach their rows and columns."""
    a, b, of_a, of_b = operands(130, 140, 400)
    a[3, 17], b[139, 399] = np.nan, np.nan
    out, best, slack = product(name, a, b, of_a, of_b)
    assert (np.isnan(out) == np.isnan(best)).all() and np.isnan(out[3]).all()
    finite = np.isfinite(best)
    assert (np.abs(out - best)[finite] <= slack).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_the_others(name: str) -> None:
    m, n = TILES[name]
    a, b, of_a, of_b = operands(m + 9, n + 5, 272)
    whole, *_ = product(name, a, b, of_a, of_b)
    alone, *_ = product(name, a[m:], b, of_a[m:], of_b)
    assert alone.tobytes() == whole[m:].tobytes()
    a[:m], of_a[:m] = np.nan, np.nan
    again, *_ = product(name, a, b, of_a, of_b)
    assert again[m:].tobytes() == whole[m:].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_scales_inside_of_others(name: str) -> None:
    """Rows of scales may lie apart, beside NaN; what is behind their last one is nobody's."""
    a, b, of_a, of_b = operands(261, 133, 400)
    best, *_ = product(name, a, b, of_a, of_b)
    apart = []
    for scales in (of_a, of_b):
        wide = np.full((len(scales), 9), np.nan, np.float32)
        wide[:, 2:6] = scales
        apart.append(amdattn.asarray(wide)[:, 2:6])
    problem = GemmProblem(261, 133, 400, ARCH.fp8, "float32", scale_a=BLOCKS, scale_b=BLOCKS)
    on_device = (amdattn.asarray(x) for x in (a, b))
    out = planned(problem, name).run(*on_device, scale_a=apart[0], scale_b=apart[1])
    assert (out.numpy() == best).all()
