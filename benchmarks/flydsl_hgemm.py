"""Compiles FlyDSL's split-K HGEMM for `decode_gemm.py --flydsl DIR`. Needs no GPU.

    python benchmarks/flydsl_hgemm.py AITER OUT N,K ... [--chip MI355X] [--rows M]

AITER is a checkout of ROCm/aiter, which has the kernel's source; the interpreter needs `flydsl` and
what it imports, and ROCM_PATH/llvm/bin needs an `ld.lld`. A kernel is compiled for one N, one K and
one number of splits; N is rounded up as `gemm_peers` says, which has the tiles. With `--rows`, the
tiles are those for many rows, for `gemm_prompts --flydsl DIR`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import sys
import types
from pathlib import Path

from gemm_peers import FLYDSL_TILES, FLYDSL_TILES_OF_MANY_ROWS, flydsl_file, padded_n

from amdattn.arch import products

_MOST_SPLITS = 13  # of AITER's registry
_TILES_M = (1, 2, 4)
_NEVER_SPLIT = (256, 256)  # tile m, n; the kernel's own limit


def import_kernel(checkout: Path) -> types.ModuleType:
    """The module of the kernel alone: AITER's packages themselves want PyTorch and a GPU."""
    name = ""
    for part in ("aiter", "ops", "flydsl", "kernels"):
        name = f"{name}.{part}".lstrip(".")
        package = types.ModuleType(name)
        package.__path__ = [str(checkout.joinpath(*name.split(".")))]
        sys.modules[name] = package
    from aiter.ops.flydsl.kernels import splitk_hgemm

    return splitk_hgemm


def _valid_splits(k: int, tile: tuple[int, ...]) -> list[int]:
    _, _, tile_k, stages, *_ = tile
    return [
        splits
        for splits in range(1, 2 if tile[:2] == _NEVER_SPLIT else _MOST_SPLITS + 1)
        if k % (splits * tile_k) == 0 and k // splits // tile_k >= stages
    ]


def splits_of_many_rows(k: int, tile: tuple[int, ...], tiles: int, cus: int) -> list[int]:
    """The two greatest numbers of splits with which all workgroups run at once, two on a CU.

    One split is always among the candidates, however many tiles there are.
    """
    return [n for n in _valid_splits(k, tile) if n == 1 or n * tiles <= 2 * cus][-2:]


def splits_of(k: int, tile: tuple[int, ...], tiles_n: int, cus: int) -> set[int]:
    """For some numbers of tiles: the most that the CUs hold at once, and the next."""
    valid = _valid_splits(k, tile)
    found = set()
    for tiles_m in _TILES_M:
        fitting = [splits for splits in valid if splits * tiles_m * tiles_n <= cus]
        found |= set(valid[max(len(fitting) - 1, 0) : len(fitting) + 1])
    return found


def code_object(dump: Path) -> bytes:
    """Of the text of MLIR's gpu.binary: bytes as they are or as backslash and two hex digits."""
    (path,) = dump.glob("*gpu_module_to_binary.mlir")
    text = re.search(rb'bin = "((?:[^"\\]|\\.)*)"', path.read_bytes(), re.DOTALL)
    if text is None:
        raise ValueError(f"{path} has no code object")
    return re.sub(
        rb"\\(\\|[0-9A-F]{2})",
        lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1], 16)]),
        text[1],
    )


def main() -> None:
    """Read the arguments, compile, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("aiter", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("shapes", nargs="+", help="N,K")
    parser.add_argument(
        "--tiles-m", type=int, nargs="*", default=[1, 2, 4, 8], help="to be exact for"
    )
    parser.add_argument("--rows", type=int, help="compile for this many rows; replaces --tiles-m")
    parser.add_argument("--chip", default=products.REFERENCE.name, help="its CUs and architecture")
    options = parser.parse_args()
    chip = products.by_name(options.chip)
    if chip is None:
        parser.error(f"--chip {options.chip} is none of {[one.name for one in products.CHIPS]}")
    options.out.mkdir(parents=True, exist_ok=True)
    dumps = options.out / "dumps"
    os.environ |= {
        **{"COMPILE_ONLY": "1", "FLYDSL_GPU_ARCH": chip.arch, "FLYDSL_DUMP_IR": "1"},
        **{"FLYDSL_DUMP_DIR": str(dumps), "FLYDSL_RUNTIME_ENABLE_CACHE": "0"},
    }
    kernel = import_kernel(options.aiter)
    import flydsl.compiler
    import flydsl.expr

    def pointer() -> object:
        return flydsl.compiler.from_c_void_p(flydsl.expr.Uint8, 0)

    tiles = (FLYDSL_TILES_OF_MANY_ROWS if options.rows else FLYDSL_TILES)[chip.arch]
    for shape in options.shapes:
        n, k = map(int, shape.split(","))
        for tile in tiles:
            if n % tile[1]:
                continue
            tiles_n = n // tile[1]
            if options.rows:
                tiles_m = [-(-options.rows // tile[0])]
                found = splits_of_many_rows(k, tile, tiles_m[0] * tiles_n, chip.num_cus)
            else:
                tiles_m = options.tiles_m
                found = sorted(splits_of(k, tile, tiles_n, chip.num_cus))
            for of_m, splits in itertools.product(tiles_m, found):
                padded = padded_n(n, tile[1], of_m)
                name = flydsl_file(padded, k, tile, splits)
                path = options.out / name
                if path.exists():
                    continue
                names = ("TILE_M", "TILE_N", "TILE_K", "STAGES")
                names += ("BLOCK_M_WARPS", "BLOCK_N_WARPS", "BLOCK_K_WARPS")
                launcher = kernel.compile_hgemm_kernel(
                    *("bf16", padded, k),
                    **dict(zip(names, tile, strict=True)),
                    **{"SPLIT_K": splits, "B_TO_LDS": True, "HAS_BIAS": False},
                )
                shutil.rmtree(dumps, ignore_errors=True)
                flydsl.compiler.compile(
                    launcher,
                    *(pointer(), pointer(), pointer(), pointer(), 1, pointer(), pointer()),
                    flydsl.expr.Stream(None),
                )
                (dump,) = dumps.glob("*")
                path.write_bytes(code_object(dump))
                print(name, flush=True)


if __name__ == "__main__":
    main()
