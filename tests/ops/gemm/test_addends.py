"""What is added to products: c with beta before the activation, a residual behind it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from tests.support.gemm_family import ACTIVATIONS

SIZES = [(1, 8, 8), (5, 63, 72), (19, 64, 200), (64, 65, 1032), (129, 136, 200), (300, 257, 72)]
TYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}


def arrays(m: int, n: int, k: int, out_dtype: str = "bfloat16") -> tuple[Any, Any, Any]:
    """a, b and what is added."""
    rng = np.random.default_rng([m, n, k])
    a, b, c = (rng.standard_normal(size, np.float32) for size in ((m, k), (n, k), (m, n)))
    bf16 = TYPES["bfloat16"]
    return a.astype(bf16), b.astype(bf16), c.astype(TYPES[out_dtype])


def f64(x: Any) -> Any:
    """Exactly."""
    return np.asarray(x).astype(np.float64)


def holds(found: Any, wanted: Any, out_dtype: str = "bfloat16") -> None:
    """Within one rounding of the type, and what float32 sums and activations lose."""
    epsilon = {"bfloat16": 2.0**-8, "float16": 2.0**-10, "float32": 2.0**-17}[out_dtype]
    assert np.abs(f64(found) - wanted).max() <= epsilon * np.abs(wanted).max()


@pytest.mark.parametrize("out_dtype", TYPES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_c_and_residual(size: tuple[int, int, int], out_dtype: str) -> None:
    """Of every type of result, whole in memory or not, by kernels for few rows and for many."""
    a, b, c = arrays(*size, out_dtype)
    product = f64(a) @ f64(b).T
    options: dict[str, Any] = {"out_dtype": out_dtype}
    holds(amdattn.gemm_nt(a, b, residual=c, **options), product + f64(c), out_dtype)
    found = amdattn.gemm_nt(a, b, c=c, beta=-0.5, alpha=2.0, **options)
    holds(found, 2 * product - 0.5 * f64(c), out_dtype)
    found = amdattn.gemm_nt(a, b, c=c, beta=3, activation="gelu", **options)
    holds(found, ACTIVATIONS["gelu"](product + 3 * f64(c)), out_dtype)
    found = amdattn.gemm_nt(a, b, residual=c, activation="silu", **options)
    holds(found, ACTIVATIONS["silu"](product) + f64(c), out_dtype)


@pytest.mark.parametrize("m", [5, 200])
def test_a_residual_of_a_gate(m: int) -> None:
    """Added to what the factors have been multiplied with; there is no c."""
    a, b, _ = arrays(m, 2 * 72, 136)
    residual = arrays(m, 72, 8)[2]
    sums = f64(a) @ f64(b).T
    wanted = ACTIVATIONS["silu"](sums[:, :72]) * sums[:, 72:] + f64(residual)
    holds(amdattn.gemm_nt(a, b, activation="silu_and_mul", residual=residual), wanted)
    with pytest.raises(ValueError, match="c cannot be added with activation="):
        amdattn.gemm_nt(a, b, activation="silu_and_mul", c=residual)


@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("deterministic", [True, False])
def test_parts_along_k_add_it_once(split_k: int, deterministic: bool) -> None:
    """Whoever arrives last."""
    a, b, c = arrays(18, 40, 1096)
    found = amdattn.gemm_nt(a, b, residual=c, split_k=split_k, deterministic=deterministic)
    holds(found, f64(a) @ f64(b).T + f64(c))


@pytest.mark.parametrize("name", ["c", "residual"])
@pytest.mark.parametrize("m", [3, 150])
def test_in_place(m: int, name: str) -> None:
    """Out may be what is added, with rows far apart; checked mode has no findings."""
    a, b, c = arrays(m, 72, 136)
    wide = amdattn.asarray(np.tile(c, (1, 2)))
    out = wide[:, :72]
    with amdattn.virtual.check():
        found = amdattn.gemm_nt(amdattn.asarray(a), amdattn.asarray(b), out, **{name: out})
    assert found is out
    holds(wide.numpy()[:, :72], f64(a) @ f64(b).T + f64(c))
    assert (wide.numpy()[:, 72:] == c).all()  # what lies between is as it was


def test_in_place_on_the_host() -> None:
    """The same of arrays of numpy."""
    a, b, c = arrays(9, 24, 64)
    wanted = f64(a) @ f64(b).T + f64(c)
    assert amdattn.gemm_nt(a, b, c, residual=c) is c
    holds(c, wanted)


def test_out_overlaps_nothing_else() -> None:
    """Neither a shifted residual nor an input."""
    a, b, c = (amdattn.asarray(x) for x in arrays(8, 24, 24))
    with pytest.raises(ValueError, match="out overlaps a in memory"):
        amdattn.gemm_nt(a, b, a, residual=c[:, :24])
    memory = amdattn.asarray(arrays(9, 24, 24)[2])
    with pytest.raises(ValueError, match="out overlaps residual in memory"):
        amdattn.gemm_nt(a, b, memory[:8], residual=memory[1:])


@pytest.mark.parametrize("m", [3, 150])
def test_beta_of_0_does_not_read_c(m: int) -> None:
    """As BLAS has it: NaN in c is not seen."""
    a, b, c = arrays(m, 24, 64)
    c[...] = np.nan
    found = amdattn.gemm_nt(a, b, c=c, beta=0)
    assert found.tobytes() == amdattn.gemm_nt(a, b).tobytes()


@pytest.mark.parametrize("m", [3, 150])
def test_nan_and_infinities_stay_where_they_are(m: int) -> None:
    """Of what is added, and nowhere else."""
    a, b, c = arrays(m, 72, 64)
    c[1, 5], c[2, 0], c[0, 71] = np.nan, np.inf, -np.inf
    found = f64(amdattn.gemm_nt(a, b, residual=c))
    assert (np.isnan(found) == np.isnan(f64(c))).all()
    assert (np.isinf(found) == np.isinf(f64(c))).all()


def test_what_is_refused() -> None:
    """By name, with what is allowed."""
    a, b, c = arrays(5, 24, 64)
    with pytest.raises(ValueError, match="c and residual were given; only one of them may be"):
        amdattn.gemm_nt(a, b, c=c, residual=c)
    with pytest.raises(ValueError, match=r"beta=2.0 is the factor of c, which was not given"):
        amdattn.gemm_nt(a, b, beta=2.0)
    with pytest.raises(
        ValueError, match=r"residual has shape \(4, 24\); this call needs \(5, 24\)"
    ):
        amdattn.gemm_nt(a, b, residual=c[:4])
    with pytest.raises(ValueError, match="residual has dtype bfloat16; this call needs float32"):
        amdattn.gemm_nt(a, b, residual=c, out_dtype="float32")
    with pytest.raises(ValueError, match=r"beta=inf must be finite|beta"):
        amdattn.gemm_nt(a, b, c=c, beta=float("inf"))


def test_without_columns_of_k() -> None:
    """Sums of nothing are 0, to which c is added."""
    a, b, c = arrays(5, 24, 8)
    holds(amdattn.gemm_nt(a[:, :0], b[:, :0], c=c, beta=0.5), 0.5 * f64(c))
