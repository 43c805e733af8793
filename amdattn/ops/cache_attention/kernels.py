"""Names of the kernels that attention of many queries over a cache has for itself."""

from __future__ import annotations

# Of KernelSpec.op.
CACHE_ROWS, LSE_ROWS = "cache_rows", "lse_rows"
# Of KernelSpec.grid. x = any number of workgroups, which share the keys; y = 2 if they copy
# queries, too.
ROWS_GRID = "shares_of_keys_and_queries"
# x = ceil(rows of all sequences and heads / lanes).
LSE_GRID = "rows_of_all_heads"
