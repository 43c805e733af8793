"""The loop of attention backward, modelled: one workgroup alone on its CU, from 1024 to 2048 rows.

    AMDATTN_DEVICE=virtual:gfx942 python -m benchmarks.attention_backward_loop
        [--reading NAME ... | all] [--sd NATS] [--dtype bf16]

Cycles of the virtual device's performance model, no GPU. What 1024 more rows of q take, for as many
keys as the workgroup has and 16 rows; the limit is what the five products take the matrix units at
their fastest. Outside: the rest of a workgroup's time, under a mask with what cut tiles take more;
another: what a second head of q takes beside its steps, under a mask with its cut tiles. Nothing in
the loop depends on the numbers, which `--sd` shows. Behind the table, main launches that are
composed of workgroups (`attention_backward_launches`), without a mask and causal; where the plan
splits blocks of keys, of one workgroup of each and of as many as it takes, and the launch that sums
them, run in full. Readings: docs/generated/readings.md. Beside them AITER's a16 and a32 (rtz where
there are roundings) composed alike, from their loops and what is outside of these, which
`attention_backward_peers` models of their objects: how many times as long they take as ours, with
what sums splits. Their workgroups have one head of q each; what adds up dK and dV of a group's
heads is not in it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import amdattn
from amdattn import virtual
from amdattn.arch import readings
from amdattn.arch.architectures import architecture
from amdattn.bench import run
from amdattn.device.profiling import LaunchProfile
from amdattn.dtypes import as_dtype
from amdattn.ops.attention_backward.kernels import BACKWARD
from amdattn.ops.attention_backward.splitting import Splits
from benchmarks.attention_backward_launches import (
    AITER,
    STEP,
    Loop,
    Sizes,
    composed,
    composed_aiter,
    composed_causal,
    composed_pairs,
    split_blocks,
    split_rows,
)

ROWS = (1024, 2048)
_MOST_SUMMED = 2**27  # bytes of splits
CAUSAL = {"causal": True, "top_left": True}  # of a first block of keys and more rows
# head_dim, head_dim_v, what is asked for besides.
MEMBERS: tuple[tuple[int, int, Mapping[str, Any]], ...] = (
    (128, 128, {}),
    (128, 128, CAUSAL),
    (128, 128, {"deterministic": True}),
    (128, 128, {"softcap": 30.0}),
    (64, 64, {}),
    (64, 64, CAUSAL),
    (64, 64, {"deterministic": True}),
    (64, 64, {"softcap": 30.0}),
    (192, 128, {}),
    (256, 256, {}),
)

# batch, heads of q and of k, rows, head_dim
SHAPES = (
    (8, 64, 64, 10240, 128),
    (8, 64, 8, 10240, 128),
    (1, 64, 8, 1024, 128),
    (1, 16, 16, 1024, 128),
    (1, 16, 16, 3072, 128),
    (1, 16, 16, 8192, 128),
    (16, 16, 16, 2048, 128),
    (16, 64, 8, 1024, 128),
    (16, 64, 8, 4096, 128),
    (16, 64, 8, 16384, 128),
    (16, 64, 64, 2048, 128),
    (16, 64, 8, 1024, 64),
    (16, 64, 8, 4096, 64),
    (16, 64, 8, 16384, 64),
)


def lifetime(
    rows: int,
    keys: int,
    head_dim: int,
    head_dim_v: int,
    dtype: str,
    sd: float,
    options: Any,
    heads: int = 1,
) -> tuple[int, LaunchProfile]:
    """Clk from the first instruction of a workgroup of the main kernel to its last, and the launch.

    sd : standard deviation of the scores, nats.
    heads : of q, that the workgroup goes through.
    """
    rng = np.random.default_rng(1)
    element = as_dtype(dtype).numpy()

    def operand(of: int, columns: int, of_heads: int = 1, scale: float = 1.0) -> NDArray[Any]:
        made = rng.standard_normal((1, of, of_heads, columns), np.float32) * np.float32(scale)
        return made.astype(element)

    q, k = operand(rows, head_dim, heads, sd), operand(keys, head_dim)
    v, dout = operand(keys, head_dim_v), operand(rows, head_dim_v, heads)
    out = operand(rows, head_dim_v, heads)
    lse = np.full((1, heads, rows), np.log(keys) + sd * sd / 2, np.float32)
    with virtual.profile() as profile:
        amdattn.flash_attn_backward(dout, q, k, v, out, lse, num_splits=1, **options)
    (main,) = (one for one in profile.launches if one.times and _is_main(one.kernel))
    (time,) = main.times
    return time.end - time.start, main


def _is_main(symbol: str) -> bool:
    return not any(part in symbol for part in ("_rows_", "_round_", "_sum_", "_sinks_"))


def measure(
    head_dim: int, head_dim_v: int, options: Mapping[str, Any], dtype: str, sd: float
) -> Loop:
    """Of the kernel that a plan takes."""
    props = amdattn.device_props()
    plan = amdattn.plan_attention_backward(
        *(1, ROWS[0], ROWS[0], 1, 1, head_dim),
        device=props,
        head_dim_v=head_dim_v,
        dtype=dtype,
        **options,
    )
    (kernel,) = (one.kernel for one in plan.launches if one.kernel.op == BACKWARD)
    keys = kernel.tile["kv"]
    short, long, two = (
        lifetime(rows, keys, head_dim, head_dim_v, dtype, sd, options, heads)[0]
        for rows, heads in ((ROWS[0], 1), (ROWS[1], 1), (ROWS[0], 2))
    )
    clk = (long - short) / (ROWS[1] - ROWS[0]) * STEP
    flops = 2 * keys * STEP * (3 * head_dim + 2 * head_dim_v)
    limit = flops / architecture(kernel.arch).matrix_flops_per_clk
    steps = ROWS[0] / STEP * clk
    return Loop(kernel.name, keys, clk, limit, short - steps, two - short - steps)


def planned_splits(
    batch: int,
    heads: int,
    heads_kv: int,
    seqlen: int,
    head_dim: int,
    dtype: str,
    *,
    causal: bool = False,
) -> Splits:
    """Of the plan for a shape."""
    plan = amdattn.plan_attention_backward(
        *(batch, seqlen, seqlen, heads, heads_kv, head_dim),
        device=amdattn.device_props(),
        dtype=dtype,
        causal=causal,
    )
    (args,) = (dict(one.args) for one in plan.launches if one.kernel.op == BACKWARD)
    return Splits(args["head_splits"], args["row_splits"], args["whole_blocks"])


def sum_clk(
    batch: int, heads_kv: int, seqlen: int, head_dim: int, dtype: str, splits: Splits
) -> float:
    """Clk of the launch that sums splits: its time does not depend on the rows of q.

    Run in full up to `_MOST_SUMMED` bytes; of more as much longer as there are more bytes.
    """
    element, few = as_dtype(dtype).numpy(), 1
    rows = batch * heads_kv * seqlen
    nbytes = rows * splits.count * 2 * head_dim * 4
    if nbytes > _MOST_SUMMED:
        fewer = max(1, seqlen * _MOST_SUMMED // nbytes)
        part = sum_clk(batch, heads_kv, fewer, head_dim, dtype, splits)
        return part * seqlen / fewer
    rng = np.random.default_rng(1)
    q = rng.standard_normal((batch, few, heads_kv, head_dim), np.float32).astype(element)
    k = rng.standard_normal((batch, seqlen, heads_kv, head_dim), np.float32).astype(element)
    lse = np.zeros((batch, heads_kv, few), np.float32)
    with virtual.profile() as profile:
        amdattn.flash_attn_backward(q, q, k, k, q, lse, num_splits=splits.count)
    (launch,) = (one for one in profile.launches if "_sum_" in one.kernel)
    return launch.cycles


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--sd", type=float, default=1.0, help="of the scores, nats")
    parser.add_argument("--reading", nargs="+", metavar="NAME", help="or all")
    arguments = parser.parse_args()
    chosen = readings.chosen(arguments.reading, amdattn.device_props().arch)
    print("| kernel | reading | keys | clk | limit | of the limit | outside | another |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    found: dict[tuple[str, int, bool], Loop] = {}
    for name in chosen:
        with run.reading(name):
            for head_dim, head_dim_v, options in MEMBERS:
                row = measure(head_dim, head_dim_v, options, arguments.dtype, arguments.sd)
                if options in ({}, CAUSAL):
                    found[name, head_dim, options == CAUSAL] = row
                causal = " causal" if options == CAUSAL else ""
                print(
                    f"| `{row.kernel}`{causal} | {name} | {row.keys} | {row.clk:.0f} "
                    f"| {row.limit:.0f} | {100 * row.use:.1f} % | {row.outside:.0f} "
                    f"| {row.another:.0f} |",
                    flush=True,
                )
    print(
        "\n| batch, heads, heads of k, rows, head_dim | main launch, Mclk | splits | sum "
        "| AITER a16, a32 / ours | causal, Mclk | AITER a16, a32 / ours |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for *of_shape, head_dim in SHAPES:
        batch, heads, heads_kv, seqlen = of_shape
        sizes = batch, heads, heads_kv, seqlen
        plain, under_mask = (found[chosen[0], head_dim, is_causal] for is_causal in (False, True))
        print(f"| {', '.join(map(str, (*sizes, head_dim)))} | ", end="")
        print(_row(plain, under_mask, sizes, head_dim, arguments.dtype), flush=True)


def _row(plain: Loop, causal: Loop, sizes: Sizes, head_dim: int, dtype: str) -> str:
    """Of the table of launches: columns behind the shape."""
    props = amdattn.device_props()
    whole = best = composed(plain, sizes, props)
    splits, more = planned_splits(*sizes, head_dim, dtype), "| |"
    batch, _, heads_kv, seqlen = sizes
    if splits.count > 1:
        after = composed(plain, sizes, props, splits)
        summed = split_rows(plain, sizes, splits)
        of_sum = sum_clk(batch, heads_kv, summed, head_dim, dtype, splits)
        behind = f" of {split_blocks(plain, sizes, splits)} blocks" if splits.whole_blocks else ""
        more = f"{after / 1e6:.3f} ({splits.heads} x {splits.rows}{behind}) | {of_sum / 1e6:.3f} |"
        best = after + of_sum
    ratios = (composed_aiter(sizes, head_dim, props, sums) / best for sums in (16, 32))
    splits, how = planned_splits(*sizes, head_dim, dtype, causal=True), ""
    ours = composed_causal(causal, plain, sizes, props, splits)
    if splits.count > 1:
        of_sum = sum_clk(batch, heads_kv, seqlen, head_dim, dtype, splits)
        how = f" ({splits.heads} x {splits.rows}, sum {of_sum / 1e6:.3f})"
        ours += of_sum
    of_causal = (
        composed_pairs(AITER[sums, props.arch, head_dim, True], sizes, props) / ours
        for sums in (16, 32)
    )
    plain_ratios, causal_ratios = (
        ", ".join(f"{ratio:.3f}" for ratio in of) for of in (ratios, of_causal)
    )
    return f"{whole / 1e6:.3f} | {more} {plain_ratios} | {ours / 1e6:.3f}{how} | {causal_ratios} |"


if __name__ == "__main__":
    main()
