"""Rows like those of the attention forward family, with tiles and limits at will."""

import dataclasses

from amdattn.op import manifest
from amdattn.ops.attention.planning import MERGE_GRID_RULE, WORK_GRID_RULE

_SHIPPED = next(row for row in manifest.kernels() if row.grid == WORK_GRID_RULE)
CONSTRAINTS = {
    "causal": [False, True],
    "window_size": "any",
    "max_window_keys": 2**31 - 1,
    "max_tile_heads": 1,
    "softcaps": [0.0, 0.0],
    "dropout_p": [0.0],
    "round_mode": ["rtne"],
    "return_lse": [False, True],
    "sinks": [False, True],
    "varlen": [False, True],
    "top_left": [False, True],
    "gqa": True,
    "pointer_align_bytes": 16,
    "stride_multiple": 8,
    "kv_stride_seq": [0, 2**25 - 1],
    "max_batch": 2**31 - 1,
    "max_seqlen_q": 2**30,
    "max_seqlen_kv": 2**30,
    "max_num_heads_q": 2**31 - 1,
    "max_num_splits": 16,
    "max_workgroups": (2**32 - 1) // 256,
}


def forward(dtype="bfloat16", head_dim=128, q_tile=384, kv_tile=32, **constraints):
    """A forward kernel that fills a CU."""
    return dataclasses.replace(
        _SHIPPED,
        name=f"fwd_{dtype}_{head_dim}_{q_tile}_{'_'.join(map(str, constraints.values()))}",
        symbol=f"fwd_{dtype}_{head_dim}_{q_tile}_{'_'.join(map(str, constraints.values()))}",
        op=manifest.ATTENTION,
        dtype=dtype,
        head_dim=head_dim,
        head_dim_v=head_dim,
        q_tile=q_tile,
        kv_tile=kv_tile,
        vgpr=512,
        agpr=256,
        lds_bytes=32768,
        grid=WORK_GRID_RULE,
        constraints={
            "head_dims": [head_dim, head_dim, 8],
            "head_dims_v": [head_dim, head_dim, 8],
            **CONSTRAINTS,
            **constraints,
        },
    )


def merge(dtype="bfloat16", head_dim_v=128, tile_rows=384, rows=32, round_mode="rtne"):
    """A kernel that merges partial results, `rows` rows a workgroup."""
    return dataclasses.replace(
        forward(dtype),
        name=f"merge_{dtype}_{head_dim_v}_{round_mode}",
        symbol=f"merge_{dtype}_{head_dim_v}_{round_mode}",
        op=manifest.ATTENTION_MERGE,
        head_dim_v=head_dim_v,
        q_tile=rows,
        kv_tile=0,
        grid=MERGE_GRID_RULE,
        constraints={"tile_rows": [tile_rows], "round_mode": [round_mode]},
    )


ROWS = (forward(), merge())
