"""Attention forward on MI355X as its authors measured it: TFLOP/s by kernel and shape.

HazyResearch/HipKittens@f09e9685, analysis/attn/fwd/benchmark/mi355x_*_fwd.json. Under a causal mask
half of the scores count. AITER's rows of head_dim 64 are of another kernel than its assembly, which
has none, and are not here.
"""

from __future__ import annotations

from amdattn.bench.shapes import PRESETS, Shape

# By kernel: of the shapes of preset "hipkittens", in their order.
_TFLOPS = {
    "aiter": (
        *(828.132, 1085.17, 1210.71, 1259.3, 1282.61, 554.633, 876.325, 1069.02, 1173.23, 1247.43),
        *(1032.47, 1152.37, 1231.18, 1281.33, 1291.3, 715.131, 941.112, 1100.88, 1204.66, 1246.14),
    ),
    "hipkittens": (
        *(952.989, 1147.61, 1228.44, 1282.92, 1304.27, 633.517, 861.36, 1048.21, 1146.4, 1187.57),
        *(999.675, 1153.98, 1262.34, 1297.82, 1325.53, 717.639, 932.734, 1084.95, 1215.52, 1259.06),
        *(738.7, 896.754, 940.891, 954.396, 968.599, 419.886, 629.908, 795.581, 873.68, 861.789),
        *(769.689, 898.312, 934.095, 960.898, 979.068, 524.965, 722.243, 821.171, 890.335, 940.911),
    ),
}
# ROCm/gfx950-gluon-tutorials, kernels/attention/README.md: one batch entry, 64 heads, 16320 rows,
# head_dim 128, float16, no mask, at 96 % of the board's power cap: TFLOP/s and clk of an iteration
# of 256 rows of Q and twice 64 keys.
SAME_BOARD = {"fav4": (1241, 4373), "fav3": (1177, 4752), "FlyDSL": (1242, 4747)}


def useful_flops(shape: Shape) -> float:
    """As these publications count them."""
    scores = shape.batch * shape.heads_q * shape.seqlen_q * shape.seqlen_kv
    return 4.0 * scores * shape.head_dim / (2 if shape.causal else 1)


def published_us(kernel: str, shape: str) -> float | None:
    """Microseconds of a row, None if it has none."""
    shapes = PRESETS["hipkittens"]
    row = next((i for i, s in enumerate(shapes) if str(s) == shape), None)
    found = _TFLOPS.get(kernel, ())
    if row is None or row >= len(found):
        return None
    return useful_flops(shapes[row]) / found[row] / 1e6
