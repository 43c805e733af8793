"""Measurements of MI300X that others published, by which the performance model is judged."""

from __future__ import annotations

# Milliseconds of attention forward, bfloat16, head_dim 128, no mask; batch, heads, seqlen.
# moonmath-ai/amd-kernels@5f758e78, README.md: median of 5 passes of 30 launches back to back.
# MoonMath's times have the transposition of V and the merge of split KV in them.
COLUMNS = tuple(
    (kernel, mode) for kernel in ("aiter", "moonmath") for mode in ("rtz", "rtna", "rtne")
)
MILLISECONDS: dict[tuple[int, int, int], tuple[float, ...]] = {
    (2, 24, 8192): (3.303, 3.605, 3.792, 2.983, 3.022, 3.083),
    (2, 24, 16384): (12.629, 13.801, 14.691, 11.385, 11.479, 11.67),
    (1, 32, 16384): (7.989, 8.656, 9.031, 7.731, 7.828, 8.013),
    (4, 16, 16384): (16.183, 17.567, 18.337, 15.055, 15.331, 15.591),
    (1, 64, 16384): (16.161, 17.535, 18.333, 15.04, 15.239, 15.528),
    (2, 24, 32768): (48.549, 52.363, 54.794, 44.075, 44.44, 46.002),
    (2, 16, 65536): (121.668, 130.278, 136.301, 114.665, 115.55, 117.612),
    (2, 8, 86016): (106.513, 114.515, 118.939, 99.397, 100.165, 101.071),
    (1, 16, 131072): (239.587, 258.092, 269.278, 226.152, 228.475, 232.517),
}

# AITER, causal, head_dim 128, RTNA, batch 16, 16 heads: counters of
# midiareshadi/attn-dsl-bench@94ea7f31. seqlen: (MfmaUtil, Occupancy) in per cent; 8 waves on a CU
# are an occupancy of 25, so that their quotient is the use while a workgroup is resident.
COUNTERS = {
    1024: (42.157, 18.22),
    2048: (50.130, 18.86),
    4096: (64.536, 22.27),
    8192: (67.652, 22.18),
    16384: (72.086, 23.07),
}
COUNTERS_BATCH_HEADS = (16, 16)
RESIDENT_WAVES_OCCUPANCY = 25
# What those counters extrapolate to for long loops: clk per 64 rows of KV, and LDS clk of a port.
AITER_RTNA_LOOP, AITER_LDS = 5100, 2240

# Per wave and 64 rows of KV, counted in the decoded loops: VALU clk without MFMA issues.
VALU_CLK = {
    "aiter": {"rtz": 1536, "rtna": 1920, "rtne": 2112},
    "moonmath": {"rtz": 1620, "rtna": 1812, "rtne": 2004},
}
MFMA_CLK = {"aiter": 4096, "moonmath": 6144}  # per SIMD

# Lanes that ds_read_b128 of this family serves together: AMD's article on LDS bank conflicts.
READ_B128_GROUPS = tuple(
    tuple(half + i for start in pair for i in range(start, start + 4))
    for half in (0, 32)
    for pair in ((0, 20), (4, 16), (8, 28), (12, 24))
)
WRITE_B128_GROUPS = tuple(tuple(range(i, i + 8)) for i in range(0, 64, 8))
