"""Plans of a growing number of keys: made from each other, they are what planning anew gives."""

import itertools
import random

import numpy as np
import pytest

import amdattn
from amdattn.arch.props import KNOWN_DEVICES, DeviceProps
from amdattn.device import manifest
from amdattn.errors import UnsupportedProblem
from amdattn.ops.attention import planning, plans as attention_plans, select
from amdattn.ops.attention.basis import basis
from amdattn.ops.attention.problem import AttentionProblem

MI300X = KNOWN_DEVICES["MI300X"]
ARCH = MI300X.arch
SMALL = DeviceProps("gfx942", "a part of one", 38, 1, 65536, 24 * 2**30)
KINDS = {
    "decode": dict(batch=8, seqlen_q=1, num_heads_q=32, num_heads_kv=8),
    "decode one": dict(batch=1, seqlen_q=1, num_heads_q=32, num_heads_kv=8, causal=True),
    "decode many": dict(batch=70, seqlen_q=2, num_heads_q=8, num_heads_kv=8),
    "window": dict(batch=4, seqlen_q=1, num_heads_q=16, num_heads_kv=2, window_size=(127, 0)),
    "windows of rows": dict(
        batch=2, seqlen_q=70, num_heads_q=8, num_heads_kv=2, causal=True, window_size=(200, 0)
    ),
    "both sides": dict(batch=2, seqlen_q=40, num_heads_q=8, num_heads_kv=2, window_size=(33, 7)),
    "left": dict(batch=2, seqlen_q=40, num_heads_q=8, num_heads_kv=2, window_size=(33, -1)),
    "causal": dict(batch=2, seqlen_q=300, num_heads_q=8, num_heads_kv=2, causal=True),
    "top left": dict(
        batch=2, seqlen_q=30, num_heads_q=8, num_heads_kv=2, window_size=(20, 5), top_left=True
    ),
    "forced": dict(batch=3, seqlen_q=1, num_heads_q=8, num_heads_kv=1, num_splits=5),
    "unsplit": dict(batch=3, seqlen_q=1, num_heads_q=8, num_heads_kv=1, num_splits=1),
    "varlen": dict(
        batch=5, seqlen_q=3, num_heads_q=8, num_heads_kv=1, total_q=9, sinks=True, return_lse=True
    ),
    "gathered": dict(batch=2, seqlen_q=1, num_heads_q=8, num_heads_kv=1, gather="k"),
}


def problem(keys, dim=128, **kind):
    if kind.get("total_q"):
        kind["total_kv"] = 2 * keys
    return AttentionProblem(seqlen_kv=keys, head_dim=dim, **kind)


def lengths(rng):
    first = rng.randrange(1, 3000)
    yield from range(first, first + 40)  # more than a block of keys
    yield from (rng.randrange(1, 40_000) for _ in range(8))
    yield from itertools.chain.from_iterable((n - 1, n, n + 1) for n in (64, 128, 256, 2048))


@pytest.mark.parametrize("props", [MI300X, SMALL], ids=["whole", "part"])
@pytest.mark.parametrize("kind", KINDS)
def test_plans_are_those_of_planning_anew(kind, props):
    rng = random.Random(f"{kind} {props.num_cus}")
    rows = manifest.kernels()
    facts = KINDS[kind] | {"dim": rng.choice((64, 128, 256))}
    derived = 0
    for keys in lengths(rng):
        asked = problem(keys, **facts)
        plan = attention_plans.planned.__wrapped__(asked, props)
        fresh = planning.plan_attention(asked, props, rows)
        derived += plan._base is not None
        assert (plan.problem, plan.props, plan.workspace) == (asked, props, fresh.workspace)
        assert plan.launches == fresh.launches
        assert plan.explain() == fresh.explain()
        assert plan.reasons == fresh.reasons and repr(plan.launches) == repr(fresh.launches)
    # Of several lengths the sum of all keys counts, which changes here with the greatest.
    assert derived or kind in ("left", "causal", "top left", "gathered", "varlen")


def test_what_a_kernel_takes_ends_where_it_ends():
    """The last length that there is a kernel for, and the first without."""
    rows = manifest.kernels()
    most = max(row.accepts["max_seqlen_kv"] for row in rows if row.op == select.ATTENTION)
    at = [problem(n, **KINDS["decode"]) for n in (most - 1, most)]
    assert basis(at[0], rows, ARCH) == basis(at[1], rows, ARCH)
    if most < 2**31 - 1:
        beyond = problem(most + 1, **KINDS["decode"])
        assert basis(beyond, rows, ARCH) != basis(at[1], rows, ARCH)
        attention_plans.planned(at[1], MI300X)
        with pytest.raises(UnsupportedProblem, match="seqlen_kv"):
            attention_plans.planned(beyond, MI300X)


def test_every_other_fact_counts():
    rows = manifest.kernels()
    one = dict(batch=2, seqlen_q=2, seqlen_kv=90, num_heads_q=4, num_heads_kv=4, head_dim=64)
    first = basis(AttentionProblem(**one), rows, ARCH)
    others = dict(batch=3, seqlen_q=3, num_heads_q=8, num_heads_kv=2, head_dim=72, head_dim_v=32)
    others |= dict(dtype="float16", softmax_scale=1.0, causal=True, window_size=(3, 3))
    others |= dict(softcap=2.0, dropout_p=0.1, round_mode="rtz", num_splits=2, return_lse=True)
    others |= dict(top_left=True, sinks=True, gather="k")
    for name, value in others.items():
        assert basis(AttentionProblem(**{**one, name: value}), rows, ARCH) != first, name
    assert basis(AttentionProblem(**one, total_q=4, total_kv=99), rows, ARCH) != first
    sums = [basis(AttentionProblem(**one, total_q=n, total_kv=99), rows, ARCH) for n in (4, 5)]
    assert sums[0] != sums[1]
    keys = [basis(AttentionProblem(**one, total_q=4, total_kv=n), rows, ARCH) for n in (98, 99)]
    assert keys[0] != keys[1]
    gaps = [
        basis(AttentionProblem(**one, total_q=4, total_kv=99, gaps=n), rows, ARCH) for n in (0, 1)
    ]
    assert gaps[0] != gaps[1]
    fields = set(AttentionProblem.__dataclass_fields__) - {
        *("seqlen_kv", "total_q", "total_kv", "gaps"),
    }
    assert fields == set(others)


@pytest.mark.device
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("options", [{}, {"window_size": (20, 0)}, {"num_splits": 3}], ids=str)
def test_decoding_with_growing_keys(layout, options):
    """Results and refusals are those of calls that remember nothing."""
    rng = np.random.default_rng(5)
    order = (0, 1, 2, 3) if layout == "bshd" else (0, 2, 1, 3)
    q, k, v = (
        amdattn.asarray(rng.standard_normal((2, n, h, 64)).astype(np.float16))
        for n, h in ((1, 4), (140, 2), (140, 2))
    )
    for keys in (30, 31, 32, 33, 64, 65, 100, 101, 128, 129, 140):
        x, y, z = (a.transpose(*order) for a in (q, k[:, :keys], v[:, :keys]))
        out, lse = amdattn.flash_attn_func(x, y, z, layout=layout, return_lse=True, **options)
        plan = planning.plan_attention(
            AttentionProblem(*(2, 1, keys, 4, 2, 64), dtype="float16", return_lse=True, **options),
            amdattn.device_props(),
            manifest.kernels(),
        )
        fields = {name: getattr(plan, name) for name in plan.__dataclass_fields__}
        alone, alone_lse = amdattn.AttentionPlan(**fields).run(x, y, z, layout=layout)
        np.testing.assert_array_equal(out.numpy().view("u2"), alone.numpy().view("u2"))
        np.testing.assert_array_equal(lse.numpy(), alone_lse.numpy())
    with pytest.raises(ValueError, match="v has seq=99 but k has seq=98"):
        amdattn.flash_attn_func(
            *(a.transpose(*order) for a in (q, k[:, :98], v[:, :99])), layout=layout, **options
        )
    plan = attention_plans.planned(
        AttentionProblem(2, 1, 101, 4, 2, 64, dtype="float16", **options), amdattn.device_props()
    )
    short = [a.transpose(*order) for a in (q, k[:, :102], v[:, :101])]
    with pytest.raises(ValueError, match="k has shape"):
        plan.run(*short, layout=layout)
    inside = amdattn.asarray(np.zeros((2, 140, 2, 64), np.float16))
    whole = [a.transpose(*order) for a in (q, inside[:, :101], inside[:, :101])]
    out = inside.reshape(2, 70, 4, 64)[:, 50:51].transpose(*order)
    with pytest.raises(ValueError, match="out overlaps k"):
        plan.run(*whole, out, layout=layout)
    before = inside.reshape(2, 70, 4, 64)[:, 69:].transpose(*order)
    plan.run(*whole, before, layout=layout)
