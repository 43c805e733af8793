"""Plans of gradients of attention: kernels, orders, memory, far rows. Nothing is launched."""

from __future__ import annotations

from typing import Any

import pytest

import amdattn
from amdattn.errors import UnsupportedProblem
from amdattn.ops.attention_backward.kernels import BACKWARD, ROUND, ROWS, SINKS

SIZES = (2, 1000, 1100, 16, 4, 128)


def plan(*sizes: int, device: str = "MI300X", **options: Any) -> Any:
    return amdattn.plan_attention_backward(*(sizes or SIZES), device=device, **options)


def main(made: Any) -> Any:
    return next(launch for launch in made.launches if launch.kernel.op == BACKWARD)


@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
@pytest.mark.parametrize("out_dtype", ["", "float32"])
def test_launches_and_memory(device: str, out_dtype: str) -> None:
    """Sums of rows, and one float32 dq unless the result is that."""
    made = plan(device=device, out_dtype=out_dtype, sinks=True, num_splits=1)
    rounds = [] if out_dtype else [ROUND]
    assert [launch.kernel.op for launch in made.launches] == [ROWS, BACKWARD, SINKS, *rounds]
    tile = main(made).kernel.tile["q"]
    rows = 2 * 16 * -(-1000 // tile) * tile
    sizes = {region.name: region.nbytes for region in made.workspace.regions}
    of_dq = {} if out_dtype else {"dq_sums": 2 * 1000 * 16 * 128 * 4}
    assert sizes == {"rows": rows * 2 * 4, **of_dq}


def test_turns_are_zero_at_rest() -> None:
    made = plan(deterministic=True)
    (turns,) = [one for one in made.workspace.regions if one.init != "none"]
    assert (turns.name, turns.init) == ("turns", "zero_at_rest")
    tiles = 2 * 16 * -(-1000 // main(made).kernel.tile["q"])
    assert turns.nbytes == (1 + tiles) * 4 * 4  # and how many workgroups have begun
    assert dict(main(plan()).args)["turns"] == 0


@pytest.mark.parametrize(
    ("dims", "name"),
    [
        ((8, 8), "d64"),
        ((64, 64), "d64"),
        ((64, 72), "d128"),
        ((72, 8), "d128"),
        ((136, 128), "d192x128"),
        ((192, 136), "d256"),
        ((256, 256), "d256"),
    ],
)
def test_the_nearest_columns(dims: tuple[int, int], name: str) -> None:
    for dtype in ("bf16", "fp16"):
        made = plan(1, 50, 60, 2, 1, dims[0], head_dim_v=dims[1], dtype=dtype)
        assert main(made).kernel.name == f"attn_bwd_{dtype}_{name}"
        for options in ({"softcap": 2.0}, {"deterministic": True}):
            made = plan(1, 50, 60, 2, 1, dims[0], head_dim_v=dims[1], dtype=dtype, **options)
            (argument,) = options
            kernel = main(made).kernel
            assert kernel.name.startswith(f"attn_bwd_{dtype}_{name}"), argument
            assert options.get("deterministic", False) in kernel.accepts["deterministic"]


@pytest.mark.parametrize(("device", "masked"), [("MI300X", 64), ("MI355X", 16)])
def test_heads_at_once(device: str, masked: int) -> None:
    """A few an XCD; under a mask more, so that long blocks begin first."""
    sizes = (32, 100, 100, 16, 4, 128)
    assert dict(main(plan(*sizes, device=device)).args)["heads_at_once"] == 8
    assert dict(main(plan(*sizes, device=device, causal=True)).args)["heads_at_once"] == masked
    wide = plan(*sizes, device=device, window_size=(100, 99))  # of no effect
    assert dict(main(wide).args)["heads_at_once"] == 8
    assert dict(main(plan(1, 9, 9, 3, 3, 64, device=device)).args)["heads_at_once"] == 3


def test_heads_at_once_of_several_lengths() -> None:
    """Where a sequence has few heads one is on all XCDs."""

    def at_once(heads_kv: int, total: int, **options: Any) -> int:
        sizes = (8, 1000, 1000, 4 * heads_kv, heads_kv, 128)
        made = plan(*sizes, total_q=total, total_kv=total, **options)
        return int(dict(main(made).args)["heads_at_once"])

    assert at_once(4, 4000) == 4 and at_once(8, 4000) == 8 and at_once(12, 4000) == 12
    assert at_once(4, 4000, causal=True) == 32 and at_once(8, 1500, causal=True) == 64
    assert at_once(4, 1500, causal=True) == 4  # the longest has most of it


def test_windows_do_not_overflow() -> None:
    """Sums of rows, diagonal and window stay within 32 bits: what reaches beyond is none."""
    most = 2**28
    for window in ((2**31 - 1, 2**31 - 1), (most, most), (most - 2, most - 2)):
        for top_left in (False, True):
            made = plan(1, most, most, 1, 1, 64, window_size=window, top_left=top_left)
            args = dict(main(made).args)
            for side in ("window_left", "window_right"):
                assert -1 <= args[side] <= 2**30


def test_offsets_of_huge_problems() -> None:
    """B16 64/8 S16384: sums of dq are 8.6 GB, which strides of 64 bits reach."""
    made = plan(16, 16384, 16384, 64, 8, 128, causal=True)
    sizes = {region.name: region.nbytes for region in made.workspace.regions}
    assert sizes["dq_sums"] == 16 * 16384 * 64 * 128 * 4 >= 2**33
    fields = {name: kind for name, _, _, kind in main(made).kernel.kernarg.fields}
    assert {fields[name] for name in fields if "_stride_" in name} == {"int64_t"}
    assert dict(main(made).args)["dq_stride_batch"] == 16384 * 64 * 128


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dropout_p": 0.5}, "dropout_p=0.5 is not built"),
        ({"gather": "k"}, "gather=k is not built"),
        ({"softcap": 1e4}, "softcap=10000.0 is not built"),
        ({"dtype": "float32"}, "dtype=float32 is not built"),
        ({"head_dim_v": 300}, "head_dim_v=300 is not built"),
    ],
    ids=str,
)
def test_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UnsupportedProblem, match=told):
        plan(**options)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ((1, 2**29 + 1, 9, 1, 1, 64), "seqlen_q=536870913 is not built"),
        ((1, 9, 2**30, 1, 1, 64), "seqlen_kv=1073741824 is not built"),
        ((2**24, 9, 900, 2, 2, 64), "batch=16777216 is not built"),
        ((2**10, 2**20, 90, 64, 64, 64), "seqlen_q=1048576 are 2147483648 workgroups"),
    ],
)
def test_too_many(sizes: tuple[int, ...], told: str) -> None:
    with pytest.raises(UnsupportedProblem, match=told):
        plan(*sizes)
