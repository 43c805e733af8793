"""Blocks of keys that several workgroups share: right, the same bits, what is written, plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.checking.findings import ERROR, FindingLog
from amdattn.checking.schedules import run, schedules
from amdattn.checking.subjects import OfOperation
from amdattn.device import runtime
from amdattn.errors import UnsupportedProblem
from amdattn.op.comparison import judge
from amdattn.ops.attention_backward.cases import (
    OPERATION,
    BackwardCase,
    case,
    expected as expected_of,
)
from amdattn.ops.attention_backward.kernels import BACKWARD, ROUND, ROWS, SINKS, SUM
from amdattn.ops.attention_backward.reference import Inputs
from tests.support.backward.calls import Call, normal

TENSORS = ("dout", "q", "k", "v", "o", "lse")


def split(count: int, **more: Any) -> dict[str, Any]:
    return {"more": {"num_splits": count, **more}}


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"causal": True},
    {"causal": True, "top_left": True},
    {"window_size": (20, 5)},
    {"window_size": (7, -1), "top_left": True},
    {"softcap": 3.0, "causal": True},
    {"softmax_scale": -0.3},
    {"sinks": True, "causal": True},
    {"dlse": True, "sinks": True, "window_size": (30, 10)},
)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    ("count", "more"),
    [
        (2, {}),
        (3, {"out_dtype": "float32"}),
        (4, {"deterministic": True}),
        (6, {"deterministic": True, "out_dtype": "float32"}),
    ],
    ids=str,
)
def test_options(options: dict[str, Any], count: int, more: dict[str, Any]) -> None:
    """Of query heads, of rows, of both."""
    normal(75, 40, (4, 2), **split(count, **more), **options).check()
    normal(50, 90, (4, 2), batch=2, **split(count, **more), **options).check()


@pytest.mark.parametrize("dims", [(8, 8), (64, 64), (128, 128), (192, 128), (256, 200)], ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("deterministic", [False, True])
def test_head_sizes(dims: tuple[int, int], dtype: str, deterministic: bool) -> None:
    """Every kernel, of more than one block of keys."""
    of = split(4, deterministic=deterministic)
    normal(70, 270, (2, 1), dims, dtype=dtype, causal=True, **of).check()


@pytest.mark.parametrize("heads", [(3, 3), (6, 2), (5, 1)])
@pytest.mark.parametrize("count", [2, 3, 5, 6])
def test_groups_of_heads(heads: tuple[int, int], count: int) -> None:
    normal(35, 300, heads, causal=True, batch=2, **split(count)).check()


@pytest.mark.parametrize("rows", [1, 16, 17, 33])
@pytest.mark.parametrize("deterministic", [False, True])
def test_more_splits_than_tiles(rows: int, deterministic: bool) -> None:
    """Some have nothing, and are 0; as are keys that no row sees."""
    normal(rows, 260, **split(7, deterministic=deterministic)).check()
    call = normal(rows, 260, causal=True, top_left=True, **split(7, deterministic=deterministic))
    call.check()
    for name in ("dk", "dv"):
        assert not call.run()[name][0, rows:].astype(np.float32).any()


LENGTHS = (((30, 70), (0, 9), (66, 5), (3, 0), (1, 1)), ((5, 300), (40, 40)))


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("more", [{}, {"deterministic": True, "out_dtype": "float32"}], ids=str)
@pytest.mark.parametrize("count", [2, 3, 8])
def test_sequences_of_several_lengths(lengths: Any, more: dict[str, Any], count: int) -> None:
    """And rows of none, which are not written."""
    one = case(num_heads_q=4, num_heads_kv=2, lengths=lengths, causal=True, sinks=True, **more)
    inputs = one.inputs(3)
    sums = inputs["cu_seqlens_q"], inputs["cu_seqlens_kv"]
    longer = [np.concatenate([inputs[name], inputs[name][:7]]) for name in TENSORS[:5]]
    lse = np.concatenate([inputs["lse"], inputs["lse"][:, :7]], axis=1)
    dtype = one.problem.element.numpy()
    given = {n: np.full(longer[of].shape, 7, dtype) for n, of in (("dq", 1), ("dk", 2), ("dv", 3))}
    p = one.problem.forward
    found = amdattn.flash_attn_varlen_backward(
        *(*longer, lse, *sums, p.seqlen_q, p.seqlen_kv),
        **{"causal": True, "sinks": inputs["sinks"], "num_splits": count, **more, **given},
    )
    for name, must in expected_of(one, inputs).items():
        x = found[("dq", "dk", "dv", "dsinks").index(name)]
        if name != "dsinks":
            assert (x[-7:].astype(np.float32) == 7).all()
            x = x[:-7]
        assert judge(x, must.values, must.tolerance, 0.0)


def same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(
        *(np.ascontiguousarray(x).view(np.uint8) for x in (one, other)), strict=True
    )


def test_the_sum_of_what_each_head_has() -> None:
    """In float32 splits by heads are added from the first one on."""
    call = normal(40, 60, (3, 1), **split(3, out_dtype="float32"))
    parts = []
    for h in range(3):
        i, heads = call.inputs, slice(h, h + 1)
        one = Inputs(*(x[:, :, heads] for x in (i.dout, i.q)), i.k, i.v, i.o[:, :, heads],
                     i.lse[:, heads])  # fmt: skip
        parts.append(Call(one, call.options, call.dtype, {"out_dtype": "float32"}).run())
    found = call.run()
    for name in ("dk", "dv"):
        same(found[name], (parts[0][name] + parts[1][name]) + parts[2][name])


def findings(one: BackwardCase) -> list[str]:
    """Of checked mode, in schedules of all kinds."""
    log = FindingLog()
    for _ in run(OfOperation(OPERATION, one, 2), schedules(4), log):
        pass
    return [finding.kind for finding in log if finding.severity == ERROR]


DETERMINISTIC: tuple[Any, ...] = (
    {"seqlen_kv": 600, "causal": True, "num_splits": 3},
    pytest.param(
        {"seqlen_kv": 600, "window_size": (100, 30), "num_splits": 2}, marks=pytest.mark.slow
    ),
    pytest.param(
        {"seqlen_kv": 600, "head_dim": 128, "num_heads_q": 2, "num_splits": 4},
        marks=pytest.mark.slow,
    ),
    {"seqlen_kv": 200, "head_dim": 192, "head_dim_v": 128, "num_heads_q": 2, "num_splits": 2},
)


@pytest.mark.parametrize("options", DETERMINISTIC, ids=str)
def test_deterministic_bits(options: dict[str, Any]) -> None:
    """In whatever order workgroups run."""
    one = {"seqlen_q": 70, "out_dtype": "float32", "deterministic": True, **options}
    assert findings(case(**one)) == []


def test_the_same_bits_of_dk_and_dv() -> None:
    call = normal(70, 600, (2, 1), causal=True, **split(4))
    first = call.run()
    for _ in range(3):
        again = call.run()
        for name in ("dk", "dv"):
            same(first[name], again[name])


@pytest.mark.parametrize("count", [1, 3])
def test_an_entry_of_a_batch_with_splits_given(count: int) -> None:
    """Has the same bits in any batch."""
    call = normal(50, 60, (2, 1), batch=3, causal=True, **split(count, deterministic=True))
    whole = call.run()
    for b in range(3):
        part = Inputs(*(getattr(call.inputs, name)[b : b + 1] for name in TENSORS))
        for name, x in Call(part, call.options, call.dtype, call.more).run().items():
            same(whole[name][b : b + 1], x)


@pytest.mark.parametrize("more", [{}, {"out_dtype": "float32"}], ids=str)
def test_old_workspaces_and_strides(more: dict[str, Any]) -> None:
    """Splits may hold anything before; results lie between NaNs, which stay."""
    call = normal(40, 65, (2, 1), causal=True, **split(3, deterministic=True, **more))
    usual = call.run()
    plan = amdattn.plan_attention_backward(
        *(1, 40, 65, 2, 1, 64),
        **{"causal": True, "num_splits": 3, "deterministic": True, **more},
        device=amdattn.device_props(),
    )
    assert plan.workspace.zero_bytes
    for fill in (0x00, 0xFF, 0x5A):
        workspace = plan.new_workspace()
        dirty = np.full(workspace.nbytes, fill, np.uint8)
        dirty[: plan.workspace.zero_bytes] = 0
        runtime.get().upload(workspace.address, dirty.ctypes.data, dirty.nbytes, 0)
        wide = {
            name: amdattn.asarray(np.full((*x.shape[:-1], 2 * x.shape[-1]), np.nan, x.dtype))
            for name, x in usual.items()
        }
        plan.run(
            *(amdattn.asarray(getattr(call.inputs, name)) for name in TENSORS),
            **{name: x[..., : usual[name].shape[-1]] for name, x in wide.items()},
            workspace=workspace,
        )
        for name, x in wide.items():
            held, columns = x.numpy(), usual[name].shape[-1]
            same(held[..., :columns], usual[name])
            assert np.isnan(held[..., columns:].astype(np.float32)).all()


def test_checked() -> None:
    """No finding in checked mode: what is read of splits, LDS, rows behind."""
    with amdattn.virtual.check():
        normal(37, 210, (2, 1), causal=True, sinks=True, dlse=True, **split(4)).run()
        normal(17, 20, dims=(72, 40), softcap=2.0, **split(3, out_dtype="float32")).run()


# -- plans -----------------------------------------------------------------------------------------


def plan(*sizes: int, device: str = "MI300X", **options: Any) -> Any:
    return amdattn.plan_attention_backward(*sizes, device=device, **options)


def splits(made: Any) -> tuple[int, int]:
    args = dict(next(one for one in made.launches if one.kernel.op == BACKWARD).args)
    return args["head_splits"], args["row_splits"]


@pytest.mark.parametrize(
    ("sizes", "options", "on_942", "on_950"),
    [
        ((1, 1024, 1024, 64, 8, 128), {}, (2, 3), (4, 1)),
        ((1, 1024, 1024, 64, 8, 128), {"causal": True}, (8, 1), (8, 1)),
        ((1, 1024, 1024, 64, 8, 128), {"deterministic": True}, (2, 3), (4, 1)),
        ((1, 1024, 1024, 16, 16, 128), {}, (1, 3), (1, 2)),
        ((1, 3072, 3072, 16, 16, 128), {}, (1, 1), (1, 1)),
        ((1, 3072, 3072, 16, 16, 128), {"causal": True}, (1, 2), (1, 2)),
        ((1, 4096, 4096, 16, 16, 128), {}, (1, 3), (1, 2)),
        ((1, 8192, 8192, 16, 16, 128), {}, (1, 1), (1, 1)),
        ((8, 10240, 10240, 64, 8, 128), {}, (2, 1), (2, 1)),
        ((8, 10240, 10240, 64, 8, 128), {"causal": True}, (1, 1), (1, 1)),
        ((8, 1024, 1024, 64, 8, 128), {}, (1, 3), (2, 1)),
        ((16, 1024, 1024, 64, 8, 128), {}, (1, 3), (1, 1)),
        ((1, 40, 60, 2, 1, 64), {}, (1, 1), (1, 1)),
        ((1, 4096, 512, 64, 1, 64), {"num_splits": 1}, (1, 1), (1, 1)),
        ((1, 4096, 512, 64, 1, 64), {"num_splits": 48}, (16, 3), (16, 3)),
    ],
    ids=str,
)
def test_plans(sizes: tuple[int, ...], options: dict[str, Any], on_942: Any, on_950: Any) -> None:
    for device, must in (("MI300X", on_942), ("MI355X", on_950)):
        made = plan(*sizes, device=device, **options)
        assert splits(made) == must, made.reasons
        ops = [launch.kernel.op for launch in made.launches]
        summed = [SUM] if must[0] * must[1] > 1 else []
        assert ops == [ROWS, BACKWARD, *summed, ROUND]


def test_launches_and_memory() -> None:
    """O(splits batch num_heads_kv seqlen_kv (head_dim + head_dim_v)), of one round of CUs."""
    made = plan(1, 1024, 1000, 64, 8, 128, head_dim_v=64, sinks=True, out_dtype="float32")
    assert [launch.kernel.op for launch in made.launches] == [ROWS, BACKWARD, SUM, SINKS]
    heads, rows = splits(made)
    sizes = {region.name: region.nbytes for region in made.workspace.regions}
    assert sizes["dk_sums"] == heads * rows * 1000 * 8 * 128 * 4
    assert sizes["dv_sums"] == heads * rows * 1000 * 8 * 64 * 4
    for batch, keys, heads_kv in ((1, 100, 1), (2, 3000, 3), (1, 20000, 1), (7, 500, 2)):
        made = plan(batch, 20000, keys, 6 * heads_kv, heads_kv, 128)
        kernel = next(one.kernel for one in made.launches if one.kernel.op == BACKWARD)
        sizes = {region.name: region.nbytes for region in made.workspace.regions}
        most = max(4 * 304 * kernel.tile["kv"] * 2 * 128 * 4, sizes["dq_sums"])
        assert sizes.get("dk_sums", 0) + sizes.get("dv_sums", 0) <= most
        assert np.prod(splits(made)) > 1
    for keys in (20000, 200000):  # of as many heads: never more than dq has
        made = plan(4, 20000, keys, 16, 16, 128)
        assert splits(made) == (1, 1)


@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
def test_one_long_sequence_among_short_ones(device: str) -> None:
    """What the blocks of keys that there may be ask for, not the grid, which is for the longest."""

    def of(batch: int, total: int, **options: Any) -> Any:
        sums = {"total_q": total, "total_kv": total}
        return plan(batch, 1024, 1024, 16, 2, 128, device=device, **sums, **options)

    alone = plan(1, 1024, 1024, 16, 2, 128, device=device)
    for batch, total in ((16, 1024 + 15 * 64), (64, 1024 + 63), (64, 1024)):
        made = of(batch, total)
        assert 4 <= np.prod(splits(made)) <= 2 * np.prod(splits(alone)), made.reasons
    assert splits(of(64, 64 * 1024)) == (1, 1)  # all are long: these fill the device


def test_windows_under_turns() -> None:
    """There rows are split at the same places of all blocks, which does not help narrow windows."""
    sizes, window = (1, 8192, 2048, 2, 2, 128), (300, 300)
    free = splits(plan(*sizes, window_size=window))
    ordered = splits(plan(*sizes, window_size=window, deterministic=True))
    assert free[1] > 1
    assert ordered != free


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_splits": 1025}, "num_splits=1025 is not built"),
        ({"num_splits": -1}, "num_splits=-1 must be >= 0"),
    ],
    ids=str,
)
def test_refused(options: dict[str, Any], told: str) -> None:
    error = ValueError if options["num_splits"] < 0 else UnsupportedProblem
    with pytest.raises(error, match=told):
        plan(1, 50, 50, 2, 1, 64, **options)
