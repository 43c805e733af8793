"""Names of the kernels of the attention backward: `KernelSpec.op` and `KernelSpec.grid`."""

from __future__ import annotations

BACKWARD, ROWS, ROUND, SINKS = "attn_bwd", "attn_bwd_rows", "attn_bwd_round", "attn_bwd_sinks"
SUM = "attn_bwd_sum"
# x = batch * num_heads_kv * ceil(seqlen_kv / tile.kv) * splits
BACKWARD_GRID = "blocks_of_keys"
# x = batch * num_heads_q * ceil(row_tiles * tile_rows / tile.rows)
ROWS_GRID = "rows_of_heads"
# x = batch * ceil(rows of all heads / (lanes / (columns / 8)))
ROUND_GRID = "rows_of_all_heads"
SINKS_GRID = "heads"  # x = num_heads_q
# x = of dk, then of dv, ceil(rows of all heads / (tile.rows * (lanes / (columns / tile.columns))))
SUM_GRID = "rows_of_dk_and_dv"
