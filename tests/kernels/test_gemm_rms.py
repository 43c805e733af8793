"""Members of the decode GEMM family that normalise rows of a."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.dtypes import as_dtype
from tests.support.gemm_family import EPS, NORMING, Call, operands

NAMES = [row.name for row in NORMING]
_BF16 = [name for name in NAMES if "_bf16_" in name]
every_member = pytest.mark.parametrize("name", NAMES)


@every_member
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 8), (17, 63, 64), (33, 65, 1032), (64, 129, 520)])
def test_sizes(name: str, m: int, n: int, k: int) -> None:
    Call(m, n, k, name).check()


@every_member
@pytest.mark.parametrize(("m", "n", "k"), [(33, 40, 200), (18, 21, 328), (66, 33, 1096)])
def test_any_order(name: str, m: int, n: int, k: int) -> None:
    """Of steps that fill the loop's registers and of fewer, whose last loads are waited for."""
    call = Call(m, n, k, name)
    call.hold_bits_and_checks(call.check())


@pytest.mark.parametrize("name", _BF16)
@pytest.mark.parametrize(
    "options",
    [
        {"activation": "silu_and_mul"},
        {"out_dtype": "float32", "alpha": -0.5},
        {"activation": "gelu"},
    ],
)
def test_ends(name: str, options: dict[str, Any]) -> None:
    Call(18, 40, 264, name, options=options).check()


@every_member
def test_rows_are_on_their_own(name: str) -> None:
    """A NaN or an infinity makes its row NaN; zeros and what is too great make theirs 0."""
    call = Call(21, 24, 72, name, with_bias=False)
    a, b = call.inputs()
    a[[2, 5], [70, 3]] = np.nan, np.inf
    a[7] = 0
    if as_dtype(call.dtype).name == "bfloat16":
        a[20] *= 2.0**70
    found = call.run(a, b).astype(np.float64)
    assert np.isnan(found[[2, 5]]).all()
    assert not found[7].any()
    others = [i for i in range(21) if i not in (2, 5, 7, 20)]
    plain = call.run(a[others[0]][None].repeat(21, 0), b)
    assert plain[0].tobytes() == plain[20].tobytes() == call.run(a, b)[others[0]].tobytes()
    if as_dtype(call.dtype).name == "bfloat16":
        assert not found[20].any()


def test_a_call() -> None:
    """What a norm and a product make, whose weights have the norm's as a factor."""
    a, b, _ = operands(5, 48, 256)
    weight = np.random.default_rng(3).uniform(0.5, 2, 256).astype(np.float32)
    folded = (b.astype(np.float32) * weight).astype(b.dtype)
    together = amdattn.gemm_nt(a, folded, rms_eps=EPS, out_dtype="float32")
    apart = amdattn.gemm_nt(amdattn.rms_norm(a, weight, eps=EPS), b, out_dtype="float32")
    assert np.abs(together - apart).max() < 2.0**-6 * np.abs(apart).max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rms_eps": 0.0}, r"rms_eps=0\.0 must be None or in"),
        ({"rms_eps": "x"}, "rms_eps"),
        ({"rms_eps": 1e-5, "split_k": 2}, "split_k=2 is not built"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    a, b, _ = operands(3, 16, 256)
    with pytest.raises((ValueError, TypeError), match=message):
        amdattn.gemm_nt(a, b, **options)
