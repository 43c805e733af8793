"""Modelled clk of attention launches, for planning.

They only decide between ways to cut the same work, so ratios matter, not times. Unless stated
otherwise, they come from the performance model of the virtual device for the shipped kernels on an
MI300X. Those of narrow windows are assumed to be the same on every architecture; others are in
`amdattn.arch.attention_kernels`. Launches and memory are those of the device.
"""

from __future__ import annotations

from amdattn.arch.architectures import architecture
from amdattn.arch.attention_kernels import ATTENTION_KERNELS
from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec

# A wave's tile of 16 query rows times a block of 32 keys, on its SIMD.
_ROWS, _KEYS, _WAVES = 16, 32, 4

# A wave of a kernel for narrow windows that has so many heads, two of them on a SIMD. Those of few
# heads wait for each other's keys and values. The last one of a SIMD is alone for about this share
# of its heads' time.
_HEADS_CLK = {1: 10500, 2: 12900, 4: 20900}
_HEAD_CLK, _ALONE = 4475, 0.6
# Of one that has its SIMD for itself from its start on, beside its heads.
_LONE_CLK = 2700

# For the last part of a tile, to begin to merge, and to do so with a part of 256 rows; and what
# its parts lose since they share fewer keys in the L2.
_FIRST_MERGED_CLK, _MERGED_CLK, _APART_CLK = 4000, 9000, 6000

# A second launch, after a gap that counts at the peak clock, which favours no split.
_MERGE_CLK = 9000  # of a workgroup


def block_clk(kernel: KernelSpec) -> float:
    """Clk of a workgroup for one KV block."""
    tiles = kernel.tile["q"] / (_ROWS * _WAVES) * (kernel.tile["kv"] / _KEYS)
    costs = ATTENTION_KERNELS[kernel.arch]
    matrix = 2 * _ROWS * _KEYS * _WAVES * _columns(kernel)
    matrix_clk = matrix / architecture(kernel.arch).matrix_flops_per_clk
    of_few_rows = costs.block_of_128_rows if kernel.tile["q"] == 128 else 0
    of_tiles = tiles * max(matrix_clk, costs.softmax)
    return of_tiles + costs.block + costs.block_of_tiles / tiles + of_few_rows


def workgroup_clk(kernel: KernelSpec, edges: int) -> float:
    """Clk of a workgroup in addition to its KV blocks, and of the edges of a window among them.

    If registers allow another workgroup on the CU, half of the work before and after the loop, and
    the memory accesses for the rows of Q and O, overlap with the other's loop. Otherwise all
    workgroups request these rows at the same time.
    """
    costs, rows = ATTENTION_KERNELS[kernel.arch], kernel.tile["q"]
    masked = edges * (rows / (_ROWS * _WAVES)) * (rows / _KEYS)
    on_cu = residents(kernel)
    of_rows = costs.workgroup_per_kib * rows * _columns(kernel) / 512 if on_cu == 1 else 0
    return costs.workgroup / on_cu + of_rows + masked * costs.masked


def residents(kernel: KernelSpec) -> int:
    """Workgroups that a CU holds at a time."""
    return max(1, architecture(kernel.arch).vgprs_per_simd // kernel.vgpr)


def _columns(kernel: KernelSpec) -> int:
    of_qk, of_vo = kernel.params["head_dim"], kernel.params["head_dim_v"]
    return int(of_qk + of_vo)


def heads_clk(heads: int) -> float:
    """Clk of a workgroup for a tile of `heads` heads under a narrow window."""
    return _HEADS_CLK[heads]


def last_heads_clk(heads: int) -> float:
    """Additional clk of the last workgroups, beside which nothing runs."""
    return _ALONE * heads * _HEAD_CLK


def lone_heads_clk(heads: int) -> float:
    """Clk of a workgroup for a tile of `heads` heads if no SIMD has two workgroups."""
    return _LONE_CLK + heads * _HEAD_CLK


def merges_itself(kernel: KernelSpec, tiles: int, parts: int, props: DeviceProps) -> bool:
    """Whether it is faster that the last part of each tile merges all of them."""
    most: int = kernel.accepts["max_merged_parts"]
    if parts > most:
        return False
    return _merged_clk(kernel, tiles, parts, props) < merge_clk(kernel, tiles * parts, props)


def _merged_clk(kernel: KernelSpec, tiles: int, parts: int, props: DeviceProps) -> float:
    of_tile = _FIRST_MERGED_CLK + (parts - 1) * _MERGED_CLK * kernel.tile["q"] / 256
    return of_tile * max(1, tiles / props.num_cus)


def partial_bytes(kernel: KernelSpec, parts: int) -> int:
    """Bytes of `parts` partial results: O, a reference and a sum of every row, in float32."""
    columns: int = kernel.params["head_dim_v"]
    return parts * kernel.tile["q"] * (columns + 2) * 4


def merging_clk(kernel: KernelSpec, tiles: int, parts: int, props: DeviceProps) -> float:
    """Clk from the end of the parts until tiles with `parts` parts each are merged."""
    if merges_itself(kernel, tiles, parts, props):
        return _APART_CLK + _merged_clk(kernel, tiles, parts, props)
    return merge_clk(kernel, tiles * parts, props)


def merge_clk(kernel: KernelSpec, parts: int, props: DeviceProps) -> float:
    """Clk to merge `parts` partial results by a launch, from the end of the first launch.

    They are written and read once each, through the last level cache.
    """
    bytes_per_clk = props.mall_bytes_per_ns / props.peak_clock_ghz / 2
    launch_clk = props.architecture.launch_us * 1e3 * props.peak_clock_ghz
    return launch_clk + _MERGE_CLK + partial_bytes(kernel, parts) / bytes_per_clk
