"""Rows like those of the attention forward family, with tiles and limits at will."""

import dataclasses

from amdattn.device import manifest
from amdattn.device.manifest import Facts, KernelSpec
from amdattn.ops.attention import select
from amdattn.ops.attention.select import MERGE_GRID, WORK_GRID

_SHIPPED = next(row for row in manifest.kernels() if row.grid == WORK_GRID)
ACCEPTS = {
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
    "max_merged_parts": 0,
    "max_workgroups": (2**32 - 1) // 256,
}


def forward(dtype="bfloat16", head_dim=128, q_tile=384, kv_tile=32, **accepts):
    """A forward kernel that fills a CU."""
    name = f"fwd_{dtype}_{head_dim}_{q_tile}_{'_'.join(map(str, accepts.values()))}"
    dims = [head_dim, head_dim, 8]
    return dataclasses.replace(
        _SHIPPED,
        name=name,
        symbol=name,
        op=select.ATTENTION,
        dtype=dtype,
        params=Facts(name, "params", {"head_dim": head_dim, "head_dim_v": head_dim}),
        tile=Facts(name, "tile", {"q": q_tile, "kv": kv_tile}),
        vgpr=512,
        agpr=256,
        lds_bytes=32768,
        grid=WORK_GRID,
        accepts=Facts(
            name, "accepts", {"head_dims": dims, "head_dims_v": dims, **ACCEPTS, **accepts}
        ),
    )


def unmerged(row: KernelSpec) -> KernelSpec:
    """A forward kernel whose parts another one merges, however many they are."""
    accepts = {**row.accepts, "max_merged_parts": 0}
    return dataclasses.replace(row, accepts=Facts(row.name, "accepts", accepts))


def merge(dtype="bfloat16", head_dim_v=128, tile_rows=384, rows=32, round_mode="rtne"):
    """A kernel that merges partial results, `rows` rows a workgroup."""
    name = f"merge_{dtype}_{head_dim_v}_{round_mode}"
    return dataclasses.replace(
        forward(dtype),
        name=name,
        symbol=name,
        op=select.MERGE,
        params=Facts(name, "params", {"head_dim": 128, "head_dim_v": head_dim_v}),
        tile=Facts(name, "tile", {"q": rows}),
        grid=MERGE_GRID,
        accepts=Facts(
            name,
            "accepts",
            {"tile_rows": [tile_rows], "round_mode": [round_mode], "max_workgroups": 2**24 - 1},
        ),
    )


ROWS = (forward(), merge())
