"""What an attention launch costs, for planning: modelled clocks, every constant of it in here.

They only decide between ways to cut the same work, so ratios matter, not times. Except where said,
they are what the performance model of the virtual device gives for the shipped kernels on an
MI300X. They are taken to be the same on every architecture: right where matrix instructions take
as many clk, too much where a kernel has those of twice the length, as gfx950's of 128 columns.
Launches and memory are the device's own.
"""

from __future__ import annotations

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec

# A wave's tile of 16 query rows times a block of 32 keys, on its SIMD.
_ROWS, _KEYS, _WAVES = 16, 32, 4
_MATRIX_CLK_PER_DIM = 2  # both products: 16 x 16 x 16 elements take 16 clk
_SOFTMAX_CLK = 258  # of the vector unit, beside the matrix unit
# Barrier, waits and branches of a block, of which more tiles hide more.
_BLOCK_CLK = 340

# Before and after the loop of a workgroup: Q and the first K and V out of the memory, the first
# scores, normalisation and stores.
WORKGROUP_CLK = 9000

# A wave of a kernel for narrow windows that has so many heads, two of them on a SIMD. Those of few
# heads wait for each other's keys and values. The last one of a SIMD is alone for about this share
# of its heads' time.
_HEADS_CLK = {1: 10500, 2: 12900, 4: 20900}
_HEAD_CLK, _ALONE = 4475, 0.6
# Of one that has its SIMD for itself from its start on, beside its heads.
_LONE_CLK = 2700

# A second launch, after a gap that counts at the peak clock, which favours no split.
_MERGE_CLK = 9000  # of a workgroup


def block_clk(kernel: KernelSpec) -> float:
    """Clocks of a workgroup for one KV block."""
    tiles = kernel.tile["q"] / (_ROWS * _WAVES) * (kernel.tile["kv"] / _KEYS)
    matrix: int = _MATRIX_CLK_PER_DIM * (kernel.params["head_dim"] + kernel.params["head_dim_v"])
    return tiles * max(matrix, _SOFTMAX_CLK) + _BLOCK_CLK / tiles


def heads_clk(heads: int) -> float:
    """Clocks of a workgroup for a tile of so many heads under a narrow window."""
    return _HEADS_CLK[heads]


def last_heads_clk(heads: int) -> float:
    """Clocks that the last workgroups take longer, since nothing runs beside them."""
    return _ALONE * heads * _HEAD_CLK


def lone_heads_clk(heads: int) -> float:
    """Clocks of a workgroup for a tile of so many heads where no SIMD has two."""
    return _LONE_CLK + heads * _HEAD_CLK


def partial_bytes(kernel: KernelSpec, parts: int) -> int:
    """Memory of `parts` partial results: O, a reference and a sum of every row, float32."""
    columns: int = kernel.params["head_dim_v"]
    return parts * kernel.tile["q"] * (columns + 2) * 4


def merge_clk(kernel: KernelSpec, parts: int, props: DeviceProps) -> float:
    """Clocks that `parts` partial results cost, from the end of the first launch.

    They are written and read once each, through the last level cache.
    """
    bytes_per_clk = props.mall_bytes_per_ns / props.peak_clock_ghz / 2
    launch_clk = props.architecture.launch_us * 1e3 * props.peak_clock_ghz
    return launch_clk + _MERGE_CLK + partial_bytes(kernel, parts) / bytes_per_clk
