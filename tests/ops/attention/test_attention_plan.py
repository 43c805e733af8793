"""Plans: the right kernels, every argument, grids, workspace and explanation. No device."""

import dataclasses
import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings, strategies as st

import amdattn
from amdattn.arch.props import KNOWN_DEVICES, DeviceProps
from amdattn.device import manifest
from amdattn.errors import ManifestError, UnsupportedProblem
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.op.plan import Address, Stride
from amdattn.ops.attention import select
from amdattn.ops.attention.planning import inverse, plan_attention
from amdattn.ops.attention.problem import AttentionProblem
from tests.support.attention.rows import ROWS, forward, merge
from tests.support.problems import attention_problems
from tests.support.shipped import shipped

MI300X = KNOWN_DEVICES["MI300X"]
FORWARD, MERGE = ROWS

PROBLEMS = attention_problems(
    batch=(1, 100),
    seqlen_q=(1, 10**5),
    seqlen_kv=(1, 10**5),
    heads_kv=(1, 16),
    group=st.integers(1, 16),
    causal=st.booleans(),
    return_lse=st.booleans(),
    sinks=st.booleans(),
    num_splits=st.sampled_from([0, 0, 1, 5]),
).filter(lambda p: p.batch * p.num_heads_q * (p.seqlen_q // 384 + 1) * max(p.num_splits, 1) < 2**24)


@settings(deadline=None)
@given(problem=PROBLEMS)
def test_grids_and_workspace_belong_together(problem):
    plan = plan_attention(problem, MI300X, ROWS)
    args = dict(plan.launches[0].args)
    q_tiles = -(-problem.seqlen_q // 384)
    tiles = q_tiles * problem.batch * problem.num_heads_q
    split = tiles - args["whole_tiles"]
    assert args["q_tiles"] == q_tiles and 0 <= args["whole_tiles"] <= tiles
    assert plan.launches[0].grid == (args["whole_tiles"] + split * args["parts"], 1, 1)
    if problem.num_splits == 1:
        assert split == 0
    if problem.num_splits > 1:
        assert (split, args["parts"]) == (tiles, problem.num_splits)
    if not split:
        assert len(plan.launches) == 1 and plan.workspace.total_bytes == 0
        assert args["partial_o"] == args["partial_max_sum"] == 0
        return
    assert 2 <= args["parts"] <= 16
    merge = plan.launches[1]
    workgroups = min(split * 12, MERGE.accepts["max_workgroups"])
    assert merge.kernel == MERGE and merge.grid == (workgroups, 1, 1)
    of_merge = dict(merge.args)
    assert (of_merge["merge_tiles"], of_merge["merge_workgroups"]) == (split, merge.grid[0])
    assert args["partial_o"] == Address("partial_o")
    results = split * args["parts"]
    assert plan.workspace["partial_o"].nbytes == results * 384 * 128 * 4
    assert plan.workspace["partial_max_sum"].nbytes == results * 384 * 8


@settings(deadline=None)
@given(problem=PROBLEMS)
def test_planning_is_deterministic_and_hashable(problem):
    one, other = (plan_attention(problem, MI300X, ROWS) for _ in range(2))
    assert one == other and hash(one) == hash(other) and one.explain() == other.explain()
    changed = dataclasses.replace(problem, seqlen_kv=problem.seqlen_kv + 1)
    assert plan_attention(changed, MI300X, ROWS) != one


@settings(deadline=None)
@given(problem=PROBLEMS)
def test_arguments_are_every_kernarg_field(problem):
    for launch in plan_attention(problem, MI300X, ROWS).launches:
        args = dict(launch.args)
        assert list(args) == [name for name, *_ in launch.kernel.kernarg.fields]
        assert args["k_stride_seq"] == Stride("k", "seq")
        assert args["lse"] == (Address("lse") if problem.return_lse else 0)
        assert args["lse_stride_head"] == (Stride("lse", "head") if problem.return_lse else 0)
        assert args["sinks"] == (Address("sinks") if problem.sinks else 0)
        assert args["cu_seqlens_q"] == 0 and args["q_stride_batch"] == Stride("q", "batch")
        assert args["seqlen_kv"] == problem.seqlen_kv


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
@example(2**31 - 1, 1)
@example(2**31 - 1, 2**30 + 1)
@example(2**31 - 1, 2**31 - 1)
@example(2**31 - 2, 2**31 - 1)
def test_inverses_divide_exactly(n, divisor):
    factor, shift = inverse(divisor)
    assert 0 <= factor < 2**32 and 0 <= shift < 32
    for number in (n, n - n % divisor, max(0, n - n % divisor - 1)):
        assert (2 * number * factor >> 32) >> shift == number // divisor


@pytest.mark.parametrize("num_splits", [1, 2])
@pytest.mark.parametrize("masking", [{}, {"causal": True}], ids=str)
@pytest.mark.parametrize("seqlen", [512, 1024, 4096])
def test_tiles_of_a_number_of_parts_do_not_depend_on_the_batch(num_splits, masking, seqlen):
    def kernels(num_splits):
        return {
            plan_attention(
                AttentionProblem(
                    batch, seqlen, seqlen, 32, 8, 128, num_splits=num_splits, **masking
                ),
                MI300X,
                ROWS,
            ).forward.kernel.name
            for batch in (1, 3, 16)
        }

    assert len(kernels(num_splits)) == 1
    assert kernels(0) != {"attn_fwd_bf16_d128_rtne"}  # what it was before tiles were compared


def test_arguments_of_sequences_of_several_lengths():
    problem = AttentionProblem(
        5, 700, 900, 4, 2, 128, total_q=2000, total_kv=3000, return_lse=True, causal=True
    )
    whole = dataclasses.replace(problem, num_splits=1)  # too few for a schedule
    args = dict(plan_attention(whole, MI300X, ROWS).launches[0].args)
    assert args["cu_seqlens_q"] == Address("cu_seqlens_q")
    assert args["cu_seqlens_kv"] == Address("cu_seqlens_kv")
    assert {args[f"{name}_stride_batch"] for name in ("q", "k", "v", "o", "lse")} == {0}
    assert args["lse_stride_head"] == Stride("lse", "head")
    assert (args["batch"], args["seqlen_q"], args["seqlen_kv"], args["q_tiles"]) == (5, 700, 900, 2)
    assert problem.shape("q", "thd") == problem.shape("o", "thd") == (2000, 4, 128)
    assert problem.shape("k", "thd") == (3000, 2, 128)
    assert problem.shape("lse", "thd") == (4, 2000)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (-1, -1, 0)),
        ({"causal": True}, (-1, 0, 0)),
        ({"causal": True, "window_size": (50, 7)}, (50, 0, 0)),
        ({"window_size": (50, 7)}, (50, 7, 0)),
        ({"window_size": (999, 799)}, (-1, -1, 0)),
        ({"window_size": (998, 798)}, (998, 798, 0)),
        ({"window_size": (799, 999), "top_left": True}, (-1, -1, 1)),
        ({"window_size": (798, 998), "top_left": True}, (798, 998, 1)),
        ({"window_size": (2**62, 2**62)}, (-1, -1, 0)),
    ],
)
def test_masks_as_the_kernel_takes_them(options, expected):
    problem = AttentionProblem(1, 800, 1000, 1, 1, 128, **options)
    args = dict(plan_attention(problem, MI300X, ROWS).launches[0].args)
    assert (args["window_left"], args["window_right"], args["top_left"]) == expected


def test_one_query_under_a_causal_mask_sees_everything():
    problem = AttentionProblem(1, 1, 1000, 1, 1, 128, causal=True)
    assert problem.window == (-1, -1)


def test_the_scale_is_to_base_2():
    problem = AttentionProblem(1, 8, 8, 1, 1, 128, softmax_scale=0.5)
    args = dict(plan_attention(problem, MI300X, ROWS).launches[0].args)
    assert args["softmax_scale_log2"] == pytest.approx(0.5 * 1.4426950408889634)


def test_workgroups_per_cu():
    """LDS and registers both limit; the AGPRs are among the registers."""
    few_registers = dataclasses.replace(FORWARD, vgpr=128, agpr=64, lds_bytes=16384)
    assert workgroups_per_cu(FORWARD, MI300X)[0] == 1
    assert workgroups_per_cu(few_registers, MI300X)[0] == 4
    assert workgroups_per_cu(dataclasses.replace(few_registers, vgpr=65), MI300X)[0] == 4
    assert workgroups_per_cu(dataclasses.replace(few_registers, lds_bytes=40000), MI300X)[0] == 1
    assert workgroups_per_cu(dataclasses.replace(few_registers, vgpr=256), MI300X)[0] == 2
    with pytest.raises(ManifestError, match=r"cannot run.*LDS"):
        workgroups_per_cu(dataclasses.replace(few_registers, lds_bytes=65540), MI300X)


def test_explanation_of_a_split():
    """MoonMath's longest shape: 1032 tiles on 304 CUs leave most of the last round idle."""
    plan = plan_attention(AttentionProblem(1, 32760, 32760, 12, 12, 128), MI300X, ROWS)
    text = plan.explain()
    assert "AMD Instinct MI300X (gfx942), 304 CUs" in text
    assert "1032 tiles on 304 slots (1 x 304 CUs): 3.39 rounds, 15.1% of them stranded" in text
    assert "q 86 x 384 rows (99.2% used), kv 1024 x 32 rows (100.0% used)" in text
    assert "the last 120 of 1032 tiles in 5 parts each (modelled: no split" in text
    assert f"{120 * 5} partial results" in text and "grid 1" in text
    partial_o = 600 * 384 * 128 * 4
    assert f"{plan.workspace.total_bytes} bytes: partial_o {partial_o}, partial_max_sum" in text


def test_explanation_names_what_is_asked_for():
    problem = AttentionProblem(
        *(3, 50, 60, 4, 2, 128),
        causal=True,
        window_size=(9, 0),
        top_left=True,
        sinks=True,
        total_q=99,
        total_kv=100,
        return_lse=True,
    )
    text = plan_attention(problem, MI300X, ROWS).as_dict()["problem"]
    for fact in ("causal=True", "window_size=(9, 0)", "top_left=True", "sinks=True", "total_q=99"):
        assert fact in text
    assert "softcap" not in text


def test_explanation_without_a_split():
    plan = plan_attention(AttentionProblem(1, 384, 64, 1, 1, 128, num_splits=1), MI300X, ROWS)
    assert dict(plan.reasons)["KV split"] == "none (num_splits=1)"
    plan = plan_attention(AttentionProblem(1, 384, 64, 1, 1, 128), MI300X, ROWS)
    assert "none (modelled: no split" in dict(plan.reasons)["KV split"]


# -- the choice of kernels -------------------------------------------------------------------------


def test_smallest_head_dim_that_fits():
    rows = tuple(
        forward(head_dim=built, head_dims=[8, built, 8], head_dims_v=[8, 256, 8])
        for built in (128, 64)
    )
    for head_dim, head_dim_v, built in (
        *((40, 40, 64), (64, 64, 64), (72, 72, 128), (128, 128, 128), (72, 8, 128)),
        *((8, 72, 128), (64, 136, 128), (128, 256, 128)),
    ):
        problem = AttentionProblem(1, 8, 8, 1, 1, head_dim, head_dim_v)
        assert select.select(rows, problem, MI300X).params["head_dim"] == built
    for head_dim, nearest in ((129, 128), (136, 128), (500, 128), (12, 16), (1, 8)):
        problem = AttentionProblem(1, 8, 8, 1, 1, head_dim, 128)
        text = rf"head_dim={head_dim} is not built \(have 8\.\.128 in steps of 8\)"
        with pytest.raises(UnsupportedProblem, match=text):
            select.select(rows, problem, MI300X)
        assert select.support(rows, problem, MI300X).nearest == {"head_dim": nearest}


def test_columns_that_one_workgroup_has_no_room_for():
    row = forward(head_dims_v=[8, 256, 8])
    for head_dim_v, groups in ((8, 1), (128, 1), (136, 2), (256, 2)):
        problem = AttentionProblem(3, 1000, 65536, 5, 5, 128, head_dim_v, num_splits=3)
        plan = plan_attention(problem, MI300X, (row, MERGE))
        args = dict(plan.launches[0].args)
        tiles = 3 * 3 * 5 * groups
        assert args["column_groups"] == groups and plan.launches[0].grid == (3 * tiles, 1, 1)
        assert plan.workspace["partial_o"].nbytes == 3 * tiles * 384 * 128 * 4
        assert ("2 groups of columns" in plan.explain()) == (groups == 2)


def test_refusals_list_what_all_kernels_as_near_take():
    rows = (
        forward(head_dim=64),
        FORWARD,
        forward(round_mode=["rtz"]),
        forward(head_dim=64, round_mode=["rtna"]),
        MERGE,
    )
    for options, text in (
        ({"head_dim": 100}, r"head_dim=100 is not built \(have 128, 64\)"),
        (
            {"head_dim": 64, "round_mode": "rtz"},
            r"^round_mode=rtz is not built \(have rtne, rtna\)",
        ),
        ({"head_dim": 128, "head_dim_v": 64}, r"^head_dim_v=64 is not built \(have 128\)"),
    ):
        with pytest.raises(UnsupportedProblem, match=text):
            select.select(rows, AttentionProblem(1, 8, 8, 1, 1, **options), MI300X)


def test_padding_is_not_assumed():
    with pytest.raises(UnsupportedProblem, match=r"head_dim=72 is not built \(have 128\)"):
        select.select(ROWS, AttentionProblem(1, 8, 8, 1, 1, 72), MI300X)


@pytest.mark.parametrize(
    ("options", "limits", "text"),
    [
        ({"causal": True}, {"causal": [False]}, "causal=True is not built (have False)"),
        (
            {"window_size": (5, 6)},
            {"window_size": [[-1, -1]]},
            "window_size=(5, 6) is not built (have (-1, -1))",
        ),
        ({"sinks": True}, {"sinks": [False]}, "sinks=True is not built (have False)"),
        ({"return_lse": True}, {"return_lse": [False]}, "return_lse=True is not built"),
        ({"softcap": 2.0}, {}, "softcap=2.0 is not built (have 0.0)"),
        ({"dropout_p": 0.5}, {}, "dropout_p=0.5 is not built (have 0.0)"),
        ({"round_mode": "rtz"}, {}, "round_mode=rtz is not built (have rtne)"),
        ({"num_splits": 17}, {}, "num_splits=17 is not built (have 0..16)"),
        ({"num_splits": 2}, {"max_num_splits": 1}, "num_splits=2 is not built (have 0..1)"),
        (
            {"causal": True, "top_left": True},
            {"top_left": [False]},
            "top_left=True is not built (have False)",
        ),
        (
            {"total_q": 100, "total_kv": 100},
            {"varlen": [False]},
            "varlen=True is not built (have False)",
        ),
        ({"dtype": "float16"}, {}, "dtype=float16 is not built (have bfloat16)"),
    ],
)
def test_constraints_are_honoured(options, limits, text):
    problem = AttentionProblem(2, 100, 200, 4, 2, 128, **options)
    with pytest.raises(UnsupportedProblem) as caught:
        plan_attention(problem, MI300X, (forward(**limits), MERGE))
    assert text in str(caught.value)
    answer = select.support((forward(**limits), MERGE), problem, MI300X)
    assert not answer and answer.reason == str(caught.value)


def test_top_left_matters_only_under_a_mask():
    problem = AttentionProblem(1, 100, 200, 1, 1, 128, top_left=True)
    assert select.support((forward(top_left=[False]),), problem, MI300X)


def test_too_many_workgroups():
    problem = AttentionProblem(2**20, 1000, 10, 8, 8, 128)
    with pytest.raises(UnsupportedProblem, match=r"batch=1048576 x .*= ?1000.* 1\.\.16777215"):
        plan_attention(problem, MI300X, ROWS)
    problem = AttentionProblem(2**16, 384, 10**4, 128, 8, 128, num_splits=16)
    with pytest.raises(UnsupportedProblem, match="num_splits=16 parts"):
        plan_attention(problem, MI300X, ROWS)


def test_a_split_needs_its_merge_kernel():
    problem = AttentionProblem(1, 384, 65536, 1, 1, 128)
    for others in ((), (merge(round_mode="rtz"),), (merge(tile_rows=256),), (merge("fp16"),)):
        with pytest.raises(ManifestError, match=r"no attn_merge kernel has .*tile_rows=384"):
            plan_attention(problem, MI300X, (FORWARD, *others))
    assert len(plan_attention(problem, MI300X, ROWS).launches) == 2


def test_unknown_grids_are_refused():
    for row, others in (
        (dataclasses.replace(FORWARD, grid="x=1"), (MERGE,)),
        (FORWARD, (dataclasses.replace(MERGE, grid="x=1"),)),
    ):
        with pytest.raises(ManifestError, match="has grid 'x=1'"):
            plan_attention(AttentionProblem(1, 384, 65536, 1, 1, 128), MI300X, (row, *others))


# -- what is shipped -------------------------------------------------------------------------------

SHIPPED = manifest.kernels()[0]


@pytest.mark.parametrize(
    ("options", "nearest"),
    [
        ({"head_dim": 12}, {"head_dim", "head_dim_v"}),
        ({"head_dim": 264}, {"head_dim", "head_dim_v"}),
        ({"dropout_p": 0.5}, {"dropout_p"}),
        ({"num_splits": 1000}, {"num_splits"}),
    ],
)
def test_supports_names_the_nearest(options, nearest):
    facts = dict(batch=1, seqlen_q=8, seqlen_kv=8, num_heads_q=2, num_heads_kv=2, head_dim=128)
    facts.update(options)
    answer = amdattn.supports(**facts, device="MI300X")
    assert not answer and set(answer.nearest) == nearest
    for name in options:
        assert name in answer.reason
    with pytest.raises(amdattn.UnsupportedProblem) as caught:
        amdattn.plan_attention(**facts, device="MI300X")
    assert str(caught.value) == answer.reason


def test_supports_lists_the_family():
    """Without a problem: what it lists is what a problem gets, and nothing else."""
    family = amdattn.supports(device="MI300X")
    forward = shipped(select.ATTENTION)
    assert [member.kernel for member in family] == [row.name for row in forward]
    for member in family:
        takes = member.takes
        options = {name: takes[name][0] for name in ("dtype", "round_mode")}
        options["softcap"] = takes["softcap"][0]
        for dim in (takes["head_dim"][0], takes["head_dim"][-1]):
            options["head_dim_v"] = takes["head_dim_v"][-1]
            assert amdattn.supports(1, 8, 8, 2, 2, dim, device="MI300X", **options)
        (row,) = (row for row in forward if row.name == member.kernel)
        too_wide = takes["head_dim"].stop
        problem = AttentionProblem(1, 8, 8, 2, 2, too_wide, **options)
        assert {m.argument for m in select.mismatches(row, problem)} == {"head_dim"}
    with pytest.raises(TypeError):
        amdattn.supports(causal=True, device="MI300X")


def test_supports_what_is_built():
    answer = amdattn.supports(1, 8, 8, 2, 1, 128, device="MI325X")
    assert answer and answer.ok and "kernel attn_fwd_bf16_d128" in answer.reason


@pytest.mark.parametrize("argument", ["seqlen_q", "seqlen_kv"])
def test_lengths_beyond_the_limit(argument):
    """2**30 rows: beyond that the sum of a row, its diagonal and a window might not fit 32 bits."""
    sizes = {"seqlen_q": 64, "seqlen_kv": 64}
    at = {**sizes, argument: 2**30}
    amdattn.plan_attention(1, at["seqlen_q"], at["seqlen_kv"], 1, 1, 128, device="MI300X")
    beyond = {**sizes, argument: 2**30 + 1}
    with pytest.raises(
        amdattn.UnsupportedProblem, match=rf"{argument}=1073741825 .*1\.\.1073741824"
    ):
        amdattn.plan_attention(
            1, beyond["seqlen_q"], beyond["seqlen_kv"], 1, 1, 128, device="MI300X"
        )


def test_shipped_splits_have_their_merge_kernels():
    for row in manifest.kernels():
        if row.op == select.ATTENTION and row.accepts["max_num_splits"] > 1:
            for mode in row.accepts["round_mode"]:
                assert select.merge_kernel(manifest.kernels(), row, mode)


def test_other_architectures():
    props = DeviceProps("gfx90a", "AMD Instinct MI250X", 104, 1, 65536, 2**36)
    assert "gfx90a" in amdattn.supports(1, 8, 8, 2, 1, 128, device=props).reason
    with pytest.raises(amdattn.UnsupportedDeviceError, match="No fallback"):
        amdattn.plan_attention(1, 8, 8, 2, 1, 128, device=props)


@pytest.mark.parametrize("device", ["MI100", None, 0])
def test_unknown_devices(device):
    with pytest.raises(ValueError, match="MI300X, MI325X, MI300A"):
        amdattn.plan_attention(1, 8, 8, 2, 1, 128, device=device)


@pytest.mark.device
def test_planning_never_reaches_the_runtime():
    code = (
        "import sys, amdattn.ops.attention.planning; "
        "assert not {'amdattn.device.runtime', 'hip', 'rocm', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("seqlen", [512, 1000, 2048, 4096, 8192, 12000])
@pytest.mark.parametrize("batch", [1, 2, 16])
def test_the_rule_between_tiles_is_the_one_that_is_printed(batch: int, seqlen: int) -> None:
    plan = amdattn.plan_attention(batch, seqlen, seqlen, 24, 24, 128, device="MI300X")
    why = str(dict(plan.reasons)["why this kernel"])
    clks = {int(q): float(clk) for q, clk in re.findall(r"(\d+) rows (\d+) clk", why)}
    assert "a smaller tile is taken if it saves more than 0.5%" in why
    most = max(clks)
    best = min(clks, key=lambda q: clks[q] if q == most else clks[q] / 0.995)
    assert plan.forward.kernel.tile["q"] == best
