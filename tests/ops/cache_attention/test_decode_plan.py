"""Problems and plans of attention over a cache: what is refused, workgroups, memory, arguments."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from amdattn.arch.props import KNOWN_DEVICES
from amdattn.errors import ManifestError, UnsupportedProblem
from amdattn.op.comparison import judge
from amdattn.op.plan import Address, PerRun, Plan, Stride
from amdattn.ops.cache_attention import decode_planning as planning
from amdattn.ops.cache_attention.decode_cases import OPERATION, cases
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from tests.support.decode_rows import decode_row, decode_rows

PROPS = KNOWN_DEVICES["MI300X"]
ROWS = decode_rows()


def problem(*sizes: int, **options: Any) -> DecodeProblem:
    defaults = (2, 1, 1024, 8, 2, 128)
    return DecodeProblem(*(*sizes, *defaults[len(sizes) :]), **options)  # type: ignore[arg-type]


def plan(of: DecodeProblem) -> Plan[DecodeProblem]:
    return OPERATION.plan(of, PROPS, ROWS)


def args(of: DecodeProblem) -> dict[str, Any]:
    return dict(plan(of).launches[0].args)


@pytest.mark.parametrize(
    ("sizes", "options", "text"),
    [
        ((0,), {}, r"batch=0 \(an empty tensor\) must be in 1.."),
        ((2, 1, 0), {}, "seqlen_kv=0"),
        ((2, 1, 2**30 + 1), {}, r"seqlen_kv=1073741825 must be in 1..1073741824"),
        ((2, 1, 64, 8, 3), {}, "num_heads_kv=3 must divide num_heads_q=8"),
        ((), {"window_size": (-2, 0)}, r"window_size=\(-2, 0\) must be >= -1 on each side"),
        ((), {"softcap": -1.0}, r"softcap=-1.0 must be >= 0"),
        ((), {"softmax_scale": 3e38}, "overflows float32"),
        ((), {"num_splits": 129}, r"num_splits=129 must be in 0..128"),
        ((2**20, 16, 64, 128), {"num_splits": 2}, "batch=1048576 times num_heads_q, seqlen_q and"),
        ((), {"seqlen_new": 1}, "cache_seqlens=None says that the cache is full"),
        (
            *((2, 1, 64), {"seqlen_new": 65, "cache_seqlens": True}),
            "k has 65 rows a sequence; the cache has room for 64",
        ),
        ((), {"page_size": 48}, "seqlen_kv=1024 must be a multiple of page_size=48"),
        ((), {"page_size": 16, "cache_batch_idx": True}, "cache_batch_idx was given with block_"),
        ((), {"page_size": 16, "cache_leftpad": True}, "cache_leftpad was given with block_table"),
        ((), {"num_pages": 1}, "k_cache has 1 sequences; without cache_batch_idx it must have at"),
        ((), {"rotary_dim": 64}, "rotary_dim=64 and rotary_positions=0 must both be 0 or both"),
        (
            *((), {"rotary_dim": 64, "rotary_positions": 2000}),
            "rotary_cos was given without k",
        ),
    ],
)
def test_malformed_problems(sizes: tuple[int, ...], options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        problem(*sizes, **options)


def test_angles_of_every_position_that_can_be() -> None:
    new = {"seqlen_new": 3, "cache_seqlens": True, "rotary_dim": 32}
    assert problem(2, 1, 64, rotary_positions=64, **new).rotary_dim == 32
    # The queries' own places go beyond the keys that are appended.
    problem(2, 5, 64, rotary_positions=66, causal=True, **new)
    problem(2, 5, 64, rotary_positions=64, **new)
    with pytest.raises(ValueError, match="has 65 positions; it must have at least 66, which"):
        problem(2, 5, 64, rotary_positions=65, window_size=(9, -1), **new)
    with pytest.raises(ValueError, match="has 63 positions; it must have at least 64, which"):
        problem(2, 1, 64, rotary_positions=63, **new)
    for dim in (31, 130):
        with pytest.raises(ValueError, match=f"rotary_dim={dim} .* a multiple of 16 and at"):
            problem(2, 1, 64, rotary_positions=64, **{**new, "rotary_dim": dim})


@pytest.mark.parametrize("size", planning.PAGE_SIZES)
def test_the_reciprocal_finds_every_page(size: int) -> None:
    """Around the borders of pages, up to as many positions as a problem of such pages may have."""
    with pytest.raises(ValueError, match=r"seqlen_kv=.* must be in 1..") as error:
        problem(1, 1, (2**31 - 1) // size * size, page_size=size)
    most = int(str(error.value).rpartition("..")[2]) // size * size
    assert most >= 2**24
    one = problem(1, 1, most, page_size=size)
    borders = np.linspace(0, most // size, 9999).astype(np.uint64) * size
    for position in (borders, borders + 1, np.maximum(borders, 1) - 1):
        there = np.minimum(position, most - 1).astype(np.uint64)
        pages = there * np.uint64(one.page_reciprocal) >> np.uint64(32)
        np.testing.assert_array_equal(pages, there // np.uint64(size))


@pytest.mark.parametrize(
    ("sizes", "options", "text"),
    [
        ((2, 17), {}, r"seqlen_q=17 is not built \(have 1..16\)"),
        ((2, 1, 64, 8, 2, 264), {}, r"head_dim=264 is not built \(have 8..256\)"),
        ((2, 1, 64, 8, 2, 100), {}, "head_dim=100 is not built .have multiples of 8"),
        ((), {"head_dim_v": 4}, "head_dim_v=4 is not built .have multiples of 8"),
        ((), {"page_size": 8}, "page_size=8 is not built .have 16..256 in steps of 16"),
        ((), {"page_size": 512}, "page_size=512 is not built .have 16..256 in steps of 16"),
        ((), {"dtype": "float32"}, r"dtype=float32 is not built \(have bfloat16, float16\)"),
    ],
)
def test_what_no_kernel_takes(sizes: tuple[int, ...], options: dict[str, Any], text: str) -> None:
    with pytest.raises(UnsupportedProblem, match=text):
        plan(problem(*sizes, **options))


@pytest.mark.parametrize(
    ("sizes", "rows", "columns"),
    [
        ((2, 1, 1024, 8, 1, 64), 16, 64),
        ((2, 2, 4096, 16, 2, 72), 16, 128),
        ((2, 5, 4096, 32, 8, 128), 32, 128),
        ((2, 16, 4096, 32, 8, 192), 64, 192),
        ((64, 16, 4096, 64, 8, 200), 64, 256),
    ],
)
def test_the_kernel_with_tiles_that_fit(sizes: Any, rows: int, columns: int) -> None:
    params = plan(problem(*sizes)).launches[0].kernel.params
    assert (params["rows"], params["columns"]) == (rows, columns)


def test_workgroups_are_as_many_as_there_is_work_or_room() -> None:
    room = PROPS.num_cus
    for sizes, options, count in (
        ((1, 1, 100), {}, 2),
        ((2, 1, 1024), {}, 2 * 2 * 8),
        ((64, 1, 1024), {}, room // 128 * 128),
        ((2, 1, 1024), {"num_splits": 1}, 2 * 2),
        ((2, 1, 1024), {"num_splits": 3}, 2 * 2 * 3),
        ((64, 1, 1024), {"num_splits": 128}, room // 128 * 128),
        ((400, 1, 1024), {}, room),
        # Of a window of 200 keys three tiles at most, wherever it begins.
        ((2, 1, 1024), {"window_size": (199, 0)}, 2 * 2 * 3),
        ((2, 1, 1024), {"window_size": (0, 5)}, 2 * 2 * 2),
        ((2, 1, 1024), {"window_size": (-1, 5)}, 2 * 2 * 8),
    ):
        launch = plan(problem(*sizes, **options)).launches[0]
        assert launch.grid == (count, 1, 1)
        assert dict(launch.args)["num_workgroups"] == count


def test_scratch_memory() -> None:
    slot = 16 * (128 + 2) * 4
    for options, num_slots in (({}, 2 * 32), ({"num_splits": 3}, 2 * 2 * 3)):
        made = plan(problem(**options))
        counters, partials = made.workspace.regions
        assert (counters.name, counters.nbytes, counters.init) == ("counters", 32, "zero_at_rest")
        assert (partials.name, partials.nbytes) == ("partials", num_slots * slot)
        given = dict(made.launches[0].args)
        assert given["partials"] == Address("partials")
        assert given["counters"] == Address("counters") and given["generation"] == PerRun()
    made = plan(problem(num_splits=1))
    assert not made.workspace.regions
    given = dict(made.launches[0].args)
    assert given["partials"] == given["counters"] == given["generation"] == 0


def test_arguments() -> None:
    given = args(problem(window_size=(7, 9), causal=True, softcap=2.0, sinks=True))
    assert (given["window_left"], given["window_right"]) == (7, 0)
    assert given["softcap"] == 2.0 and given["sinks"] == Address("sinks")
    assert given["softmax_scale_log2"] == pytest.approx(128**-0.5 / np.log(2))
    assert given["num_splits"] == -(given["num_workgroups"] // (2 * 2))  # at most so many parts
    assert args(problem(num_splits=3))["num_splits"] == 3
    assert args(problem(400))["num_splits"] == 0
    assert given["cache_seqlens"] == given["block_table"] == given["k_new"] == given["lse"] == 0
    assert (given["page_keys"], given["num_pages"], given["max_seqlen"]) == (1024, 2, 1024)
    assert (given["page_reciprocal"], given["table_stride"], given["row_tiles"]) == (0, 0, 1)
    given = args(problem(3, 4, 480, 12, 2, 64, page_size=48, num_pages=99, return_lse=True))
    assert (given["page_keys"], given["num_pages"], given["max_seqlen"]) == (48, 99, 480)
    assert given["page_reciprocal"] == -(-(2**32) // 48)
    assert given["table_stride"] == Stride("block_table", "batch")
    assert given["lse"] == Address("lse") and given["row_tiles"] * 32 >= 4 * 6
    new = {"seqlen_new": 2, "cache_seqlens": True, "rotary_dim": 16, "rotary_positions": 1024}
    made = plan(problem(**new, rotary_interleaved=False))
    given = dict(made.launches[0].args)
    assert given["k_new_seq"] == Stride("k", "seq") and given["v_new_head"] == Stride("v", "head")
    assert (given["rotary_dim"], given["rotary_flags"], given["seqlen_new"]) == (16, 0, 2)
    made = plan(problem(**new, rotary_dtype="float32"))  # interleaved
    assert dict(made.launches[0].args)["rotary_flags"] == 1 | 2
    assert {"k_cache", "v_cache"} <= made.launches[0].updates


def test_every_case_plans_and_its_reference_holds_of_itself() -> None:
    for case in [*cases(None), *(case for row in ROWS for case in cases(row))]:
        made = OPERATION.plan(case.problem, PROPS, ROWS, case.kernel)
        specs = [one for one in made.specs().values() if one.present]
        inputs = [one.name for one in specs if one.role != "out"]
        results = [one.name for one in specs if one.role == "out"]
        assert made.flow_errors(inputs, results) == [], case.title
        arrays = case.inputs(0)
        assert list(arrays) == inputs == list(made.input_names)
        for one in specs:
            if one.role != "out":
                found = arrays[one.name]
                assert (found.shape, found.dtype) == (one.shape, one.dtype.numpy()), one.name
    for case in cases(None):
        for must in OPERATION.reference(case, case.inputs(1)).values():
            assert judge(must.values, must.values, must.tolerance, 0.0), case.title


def test_a_kernel_of_another_grid_is_refused() -> None:
    other = dataclasses.replace(decode_row(), grid="tiles")
    with pytest.raises(ManifestError, match="has grid 'tiles', not 'shares_of_work'"):
        OPERATION.plan(problem(), PROPS, (other,))
