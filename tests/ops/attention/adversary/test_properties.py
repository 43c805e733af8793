"""What holds of results bit for bit: they repeat, and depend on nothing but their own inputs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import amdattn
from tests.support.adversary.classes import CLASSES
from tests.support.adversary.launches import Kernel, kernels
from tests.support.adversary.plain import round_to
from tests.support.adversary.sweep import made
from tests.support.attention.family import Array, Call, Member

TAKES_ANY = [kernel for kernel in kernels() if kernel.takes_any]
PARTS = (1, 2)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("seed", range(12))
def test_a_sequence_does_not_depend_on_the_batch(seed: int) -> None:
    """With num_splits given: the planner's choice of kernels and tiles must not show either."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    dim = int(rng.choice([64, 128]))
    heads = int(rng.choice([1, 2, 4])), 1
    rows, keys = rng.integers(1, 90, count), rng.integers(1, 150, count)
    rows[rng.integers(count)] = int(rng.integers(100, 400))
    q, k, v = (
        normal(rng, n, h, dim)
        for n, h in zip((rows.sum(), keys.sum(), keys.sum()), (*heads, 1), strict=True)
    )
    options: dict[str, Any] = {
        "num_splits": int(rng.integers(1, 4)),
        "causal": bool(rng.random() < 0.5),
        "round_mode": str(rng.choice(["rtne", "rtna", "rtz"])),
        "return_lse": True,
    }
    starts = [np.concatenate([[0], np.cumsum(n)]).astype(np.int32) for n in (rows, keys)]
    out, lse = amdattn.flash_attn_varlen_func(
        q, k, v, *starts, int(rows.max()), int(keys.max()), **options
    )
    for n in range(count):
        of_q, of_k = (slice(s[n], s[n + 1]) for s in starts)
        lengths = [np.array([0, x[n]], np.int32) for x in (rows, keys)]
        alone, alone_lse = amdattn.flash_attn_varlen_func(
            *(q[of_q], k[of_k], v[of_k], *lengths, int(rows.max()), int(keys.max())), **options
        )
        assert np.asarray(alone).tobytes() == np.asarray(out)[of_q].tobytes()
        assert np.asarray(alone_lse).tobytes() == np.asarray(lse)[:, of_q].tobytes()


@pytest.mark.parametrize("seed", range(6))
def test_an_entry_does_not_depend_on_the_batch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch, rows, keys = (int(rng.integers(*ends)) for ends in ((2, 6), (1, 300), (1, 300)))
    dim = int(rng.choice([64, 128]))
    options: dict[str, Any] = {"num_splits": int(rng.integers(1, 4)), "causal": seed % 2 == 0}
    if seed % 3 == 0:
        options["window_size"] = (60, 20)
    q = normal(rng, batch, rows, 2, dim)
    k, v = (normal(rng, batch, keys, 1, dim) for _ in range(2))
    out = np.asarray(amdattn.flash_attn_func(q, k, v, **options))
    for n in range(batch):
        one = slice(n, n + 1)
        alone = np.asarray(amdattn.flash_attn_func(q[one], k[one], v[one], **options))
        assert alone.tobytes() == out[one].tobytes()


@pytest.mark.parametrize("name", list(CLASSES)[::4])
def test_bits_repeat(name: str) -> None:
    """Whatever the order of waves and workgroups."""
    launch = made(name, 0, seed=5)
    results = set()
    try:
        for threads, seed in ((1, 0), (2, 1), (2, 2)):
            amdattn.virtual.set_option("threads", threads)
            amdattn.virtual.set_option("seed", seed)
            out, lse, _ = launch.results()
            results.add((out.tobytes(), lse.tobytes()))
    finally:
        amdattn.virtual.set_option("seed", 0)
        amdattn.virtual.set_option("threads", 0)
    assert len(results) == 1


@pytest.mark.parametrize("kernel", TAKES_ANY, ids=lambda kernel: kernel.name)
def test_ties_of_denormal_results(kernel: Kernel) -> None:
    """32 keys with one V and 32 with another, of equal weights: their mean, rounded once."""
    rng = np.random.default_rng(0)
    dim = min(kernel.head_dim, 128)
    spacing = 2.0**-133 if kernel.dtype == "bfloat16" else 2.0**-24
    both = rng.integers(-40, 40, (2, dim)) * spacing
    expected = round_to(both.mean(0).astype(np.float32), kernel.dtype, kernel.mode)
    member = Member(kernel.dtype, kernel.head_dim, dim, kernel.mode, kernel.name)
    q, k = (np.zeros((1, n, 1, kernel.head_dim), member.element) for n in (5, 64))
    v = np.repeat(both, 32, 0)[None, :, None].astype(np.float32).astype(member.element)
    options: dict[str, Any] = {"softcap": 30.0} if kernel.is_capped else {}
    for parts in (1,) if kernel.is_narrow else PARTS:
        out, _ = Call(member, {**options, "num_splits": parts}).run(q, k, v)
        np.testing.assert_array_equal(
            out[0, :, 0].astype(np.float32), np.broadcast_to(expected, (5, dim))
        )


@pytest.mark.parametrize("kernel", TAKES_ANY, ids=lambda kernel: kernel.name)
def test_a_row_with_one_key_gets_its_v(kernel: Kernel) -> None:
    """Whatever that is, but for infinities and NaN."""
    member = Member(kernel.dtype, kernel.head_dim, 64, kernel.mode, kernel.name)
    rng = np.random.default_rng(1)
    rows = 300 if member.dtype == "bfloat16" else 40
    q, k = (rng.standard_normal((1, rows, 1, kernel.head_dim)) for _ in range(2))
    top = 0x7F80 if kernel.dtype == "bfloat16" else 0x7C00
    bits = rng.integers(0, top, (1, rows, 1, 64)) | 0x8000 * rng.integers(0, 2, (1, rows, 1, 64))
    v = bits.astype(np.uint16).view(member.element)
    options: dict[str, Any] = {"softcap": 30.0} if kernel.is_capped else {}
    options |= {"window_size": (0, 0), "num_splits": 1}
    out, _ = Call(member, options).run(q.astype(v.dtype), k.astype(v.dtype), v)
    np.testing.assert_array_equal(out.astype(np.float32), v.astype(np.float32))
