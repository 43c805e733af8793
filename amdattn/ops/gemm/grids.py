"""The two grids of products: parts and tiles by XCD, for few rows; tiles in windows, for many."""

from __future__ import annotations

import math

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.op.occupancy import workgroups_per_cu
from amdattn.ops.gemm.problem import GemmProblem

# Of KernelSpec.grid. x = 8 * parts, y = ceil(m / tile.m) * products, z = ceil(n / (8 * tile.n)):
PARTS = "parts_by_xcd_and_tiles"
XCDS = 8
# x = tiles of m times tiles of n, of all products:
WINDOWS = "tiles_in_windows"
LINE_BYTES = 128
WINDOW = 8  # tiles of m in a window, as in asm_src/gemm_tiles/place.h


def has_windows(kernel: KernelSpec) -> bool:
    """Whether the kernel is one for many rows, whose tiles have one width."""
    return kernel.grid == WINDOWS


def most_columns(problem: GemmProblem, kernel: KernelSpec) -> int:
    """Results in a row of a tile; with a gate, half of its columns are factors."""
    held: int = kernel.tile["n"]
    return held // (1 + problem.has_factors)


def tiles(problem: GemmProblem, kernel: KernelSpec, columns: int) -> tuple[int, int]:
    """Tiles along m and along n."""
    return -(-problem.m // kernel.tile["m"]), -(-problem.n // columns)


def num_tiles(problem: GemmProblem, kernel: KernelSpec, columns: int) -> int:
    """Tiles of all products; for groups, the most that any sizes give."""
    tiles_m, tiles_n = tiles(problem, kernel, columns)
    if problem.groups_share_k:
        return tiles_m * tiles_n * problem.groups
    if problem.groups:
        tile_m: int = kernel.tile["m"]
        tiles_m = (problem.m + min(problem.groups, problem.m) * (tile_m - 1)) // tile_m
    return tiles_m * tiles_n * max(problem.batch, 1)


def lines_of_step(row_bytes: int) -> float:
    """Cache lines that hold a step of a row: two if rows begin within lines."""
    return 2 - math.gcd(row_bytes, LINE_BYTES) / LINE_BYTES


def chunk(kernel: KernelSpec, props: DeviceProps) -> int:
    """The number of tiles that an XCD works on at a time; they follow each other."""
    return workgroups_per_cu(kernel, props)[0] * (props.num_cus // props.num_xcds)


def grid(
    problem: GemmProblem, kernel: KernelSpec, splits: int, columns: int
) -> tuple[int, int, int]:
    """The grid of a launch."""
    if has_windows(kernel):
        return num_tiles(problem, kernel, columns) * splits, 1, 1
    tiles_m, tiles_n = tiles(problem, kernel, columns)
    kernel.check_grid(PARTS)
    return XCDS * splits, tiles_m * max(problem.batch, 1), -(-tiles_n // XCDS)


def splits_of(problem: GemmProblem, kernel: KernelSpec, grid: tuple[int, int, int]) -> int:
    """Parts along k of a launch with this grid."""
    if has_windows(kernel):
        return grid[0] // num_tiles(problem, kernel, most_columns(problem, kernel))
    return grid[0] // XCDS


def steps(problem: GemmProblem, kernel: KernelSpec) -> int:
    """Steps of k: one or two cache lines of a row each; for groups of k, of an even share."""
    step: int = kernel.params["step"]
    groups = problem.groups if problem.groups_share_k else 1
    return -(-problem.k // (step * groups))


def split_steps(problem: GemmProblem, kernel: KernelSpec, splits: int) -> int:
    """Steps of each part; the last one may have fewer."""
    return -(-steps(problem, kernel) // splits)
