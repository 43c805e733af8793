"""Peers of `gemm_nt` as launches: AITER's assembly, FlyDSL's split-K HGEMM, a Triton kernel.

One XCD is simulated, but workgroups of a peer's tile wait for each other, and on a GPU they may be
on different XCDs. Where they are, N is rounded up so that they are not, and of the larger grid as
many workgroups are simulated as the fullest XCD would have. That favours the peer: its partial
results never leave the XCD's L2.
"""

from __future__ import annotations

import csv
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from amdattn.arch.props import DeviceProps
from amdattn.bench.kernels import Launch

XCDS = 8
_LANES_PER_WAVE = 64
_MOST_SPLITS = 16
# Of AITER's launcher. Slots of 16 bytes: addresses of D, C, A, B; alpha, beta; strides in bytes of
# D, C, A, B, two each; M, N, K, splits; whether D is bfloat16; bias, whether there is one;
# semaphores. From the public launcher, csrc/py_itfs_cu/asm_gemm_a16w16.cu.
_AITER_SLOTS = "<" + "Q8x" * 4 + "f12x" * 2 + "I12x" * 8 + "I12x" * 5 + "Q8xI12xQ8x"
# Tile m, n, k, stages; waves along m, n, k. Those that AITER's tuned tables choose most for up to
# 128 rows, as far as the LDS holds their stages.
FLYDSL_TILES = {
    "gfx942": (
        (16, 64, 64, 5, 1, 2, 1),
        (16, 64, 128, 3, 1, 2, 1),
        (32, 64, 64, 5, 1, 4, 1),
        (64, 64, 64, 4, 2, 2, 1),
        (128, 64, 64, 2, 4, 2, 1),
    ),
    "gfx950": (
        (16, 64, 64, 5, 1, 2, 1),
        (16, 64, 64, 8, 1, 2, 1),
        (16, 64, 128, 4, 1, 2, 1),
        (16, 64, 128, 6, 1, 2, 1),
        (16, 64, 128, 7, 1, 1, 2),
        (32, 64, 64, 7, 1, 4, 1),
        (32, 64, 128, 4, 1, 4, 1),
        (32, 64, 128, 4, 2, 2, 1),
        (64, 64, 64, 7, 1, 4, 1),
        (64, 64, 128, 4, 2, 4, 1),
    ),
}
# Tiles for many rows: those with the fastest steps, with one and with two workgroups on a CU.
FLYDSL_TILES_OF_MANY_ROWS = {
    "gfx942": ((128, 128, 64, 2, 2, 4, 1), (128, 128, 32, 2, 2, 4, 1), (256, 128, 32, 2, 2, 4, 1)),
    "gfx950": ((256, 256, 64, 2, 2, 4, 1), (128, 128, 64, 2, 2, 2, 1), (128, 128, 64, 4, 2, 4, 2)),
}
_FLYDSL_SPLITS = 3  # numbers that are tried: the greatest with two workgroups a CU
# Tile n, k, waves; tile m is chosen by the rows that there are.
_TRITON_MANY_ROWS = ((256, 256, 64, 8), (256, 128, 64, 8), (128, 128, 64, 4))  # m, n, k, waves
# The tiles among which the best one is picked.
TRITON_TILES_OF_MANY_ROWS = (
    *_TRITON_MANY_ROWS,
    *((256, 256, 32, 8), (128, 256, 64, 8), (256, 128, 32, 8), (256, 64, 64, 4), (64, 256, 64, 4)),
    *((128, 128, 32, 4), (128, 64, 64, 4), (64, 128, 64, 4), (64, 64, 64, 4)),
)
# What Triton calls them.
TRITON_TYPES = {
    **{"bfloat16": "bf16", "float16": "fp16"},
    **{"float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16"},
    **{"float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"},
}
_TRITON_TILES = ((16, 256, 4), (32, 128, 2), (64, 128, 4), (128, 64, 4))


@dataclass(frozen=True)
class Operands:
    """Addresses for one shape: b and out of the rows that the largest padded N needs.

    `zeros` are counters, cleared before every attempt; `parts` is memory for partial results.
    """

    a: int
    b: int
    out: int
    bias: int
    zeros: int
    parts: int


@dataclass(frozen=True)
class Attempt:
    """One way of a peer to solve a shape: its launches, one after the other."""

    name: str
    launches: tuple[Launch, ...]
    workgroups: int = 0  # of the XCD that are simulated; 0: all


Peer = Callable[[int, int, int, Operands], Iterator[Attempt]]


def padded_n(n: int, tile_n: int, tiles_m: int) -> int:
    """Least N of at least `n` for which all tiles together are a multiple of the XCDs."""
    step = tile_n * (XCDS // math.gcd(XCDS, tiles_m))
    return -(-n // step) * step


def _of_fullest_xcd(tiles: int, splits: int) -> int:
    return -(-tiles * splits // XCDS)


class Aiter:
    """Every tile that takes N, with the splits of its launcher."""

    def __init__(self, checkout: Path, props: DeviceProps) -> None:
        self._cus = props.num_cus
        self._folder = checkout / "hsa" / props.architecture.name / "bf16gemm"
        with open(self._folder / "bf16gemm_fp32bf16.csv", newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["bPreshuffle"] == "0"]
            self._rows = [row for row in rows if row["splitK"] == "1"]
            self._whole = [row for row in rows if row["tileM"] == row["tileN"] == "256"]

    def many_rows(self, m: int, n: int, k: int, at: Operands, dtype: str) -> Iterator[Attempt]:
        """Its tile of 256 x 256, where there is one and it takes the shape and type."""
        for row in self._whole:
            if n % 256 == 0 and m % 256 == 0 and dtype == "bfloat16":
                yield Attempt("256 x 256", (self._launch(row, m, n, k, 1, at),))

    def __call__(self, m: int, n: int, k: int, at: Operands) -> Iterator[Attempt]:
        """Attempts at a shape."""
        for row in self._rows:
            tile_m, tile_n = int(row["tileM"]), int(row["tileN"])
            if n % tile_n or tile_m > max(32, m):
                continue
            tiles_m = -(-m // tile_m)
            padded = padded_n(n, tile_n, tiles_m)
            tiles = tiles_m * (n // tile_n)
            splits = max(2, min(self._cus // tiles, 16, k // int(row["subK"])))
            launch = self._launch(row, m, padded, k, splits, at)
            yield Attempt(
                f"{tile_m} x {tile_n}, {splits} splits",
                (launch,),
                _of_fullest_xcd(tiles, splits),
            )

    def _launch(
        self, row: dict[str, str], m: int, padded: int, k: int, splits: int, at: Operands
    ) -> Launch:
        kernarg = struct.pack(
            _AITER_SLOTS,
            *(at.out, 0, at.a, at.b, 1.0, 0.0),
            *(0, 0, 2 * padded, 0, 2 * k, 0, 2 * k, 0),
            *(m, padded, k, splits, 1, at.bias, 0, at.zeros),
        )
        image = (self._folder / row["co_name"]).read_bytes()
        grid = padded // int(row["tileN"]), -(-m // int(row["tileM"])), splits
        return Launch(image, row["knl_name"], grid, (256, 1, 1), kernarg)


def flydsl_symbol(tile: tuple[int, ...], splits: int) -> str:
    """The kernel's name in its code object."""
    tile_m, tile_n, tile_k, stages, waves_m, waves_n, waves_k = tile
    return (
        f"hgemm_bf16_{tile_m}x{tile_n}x{tile_k}x{stages}_SPK{splits}"
        f"_W{waves_m}x{waves_n}x{waves_k}_BLDS1_TN_AS1_0"
    )


def flydsl_file(n: int, k: int, tile: tuple[int, ...], splits: int) -> str:
    """Where `flydsl_hgemm.py` puts it."""
    return f"n{n}_k{k}_{flydsl_symbol(tile, splits)}.hsaco"


class FlyDsl:
    """Kernels that `flydsl_hgemm.py` compiled for K and for N or the next one that will do."""

    def __init__(
        self,
        folder: Path,
        props: DeviceProps,
        tiles: Mapping[str, Sequence[tuple[int, ...]]] = FLYDSL_TILES,
    ) -> None:
        self._folder, self._cus = folder, props.num_cus
        self._tiles = tiles[props.architecture.name]

    def __call__(self, m: int, n: int, k: int, at: Operands) -> Iterator[Attempt]:
        """Attempts at a shape."""
        for tile in self._tiles:
            tile_m, tile_n, *_, waves_m, waves_n, waves_k = tile
            if n % tile_n or tile_m > max(16, m):
                continue
            tiles_m = -(-m // tile_m)
            tiles = tiles_m * (n // tile_n)
            found = {}
            for splits in range(1, max(1, min(_MOST_SPLITS, 2 * self._cus // tiles)) + 1):
                for padded in range(n, padded_n(n, tile_n, 1) + 1, tile_n):
                    path = self._folder / flydsl_file(padded, k, tile, splits)
                    if padded % padded_n(1, tile_n, tiles_m) == 0 and path.exists():
                        found[splits] = path.read_bytes(), padded // tile_n
                        break
            for splits in list(found)[-_FLYDSL_SPLITS:]:
                image, tiles_n = found[splits]
                signals = at.zeros + 4 * 4096
                kernarg = struct.pack("<4Qi4x2Q", at.out, at.a, at.b, at.bias, m, at.zeros, signals)
                launch = Launch(
                    image,
                    flydsl_symbol(tile, splits),
                    (tiles_m * tiles_n, splits, 1),
                    (waves_m * waves_n * waves_k * _LANES_PER_WAVE, 1, 1),
                    kernarg,
                )
                yield Attempt(
                    f"{tile_m} x {tile_n} x {tile[2]}, {tile[3]} stages, {splits} splits",
                    (launch,),
                    _of_fullest_xcd(tiles, splits),
                )


class Triton:
    """The kernel of `triton_gemm` with several tiles, and splits that fill the CUs once or twice.

    Parts are added by a kernel of its own; nothing is counted for launching it.
    """

    def __init__(self, props: DeviceProps) -> None:
        self._arch, self._cus = props.architecture, props.num_cus
        self._compiled: dict[object, Any] = {}

    def __call__(self, m: int, n: int, k: int, at: Operands) -> Iterator[Attempt]:
        """Attempts at a shape."""
        whole_m = max(16, 1 << (m - 1).bit_length())
        for tile_m in {min(whole_m, 128), min(whole_m, 64)}:
            for tile_n, tile_k, waves in _TRITON_TILES:
                tiles_m, tiles_n = -(-m // tile_m), -(-n // tile_n)
                steps = -(-k // tile_k)
                most = min(_MOST_SPLITS, steps // 4)
                filling = {fill * self._cus // (tiles_m * tiles_n) for fill in (1, 2)}
                for splits in sorted({max(1, min(filled, most)) for filled in filling}):
                    k_of_split = -(-steps // splits) * tile_k
                    if k_of_split * (splits - 1) >= k:
                        continue
                    first = self._launch(
                        "gemm",
                        {"a": at.a, "b": at.b, "out": at.parts if splits > 1 else at.out},
                        {"m": m, "n": n, "k": k, "k_of_split": k_of_split},
                        {"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k}
                        | {"EVEN_K": k % k_of_split == 0},
                        (-(-tiles_n // XCDS) * XCDS, tiles_m, splits),
                        waves,
                        "fp32" if splits > 1 else "bf16",
                    )
                    if first.dynamic_lds_bytes > self._arch.lds_bytes:
                        continue
                    launches = (first,)
                    if splits > 1:
                        tile = 256
                        launches += (
                            self._launch(
                                "add",
                                {"parts": at.parts, "out": at.out},
                                {"count": m * n},
                                {"SPLITS": splits, "TILE": tile},
                                (-(-m * n // tile), 1, 1),
                                1,
                                "fp32",
                            ),
                        )
                    yield Attempt(f"{tile_m} x {tile_n} x {tile_k}, {splits} splits", launches)

    def many_rows(
        self,
        m: int,
        n: int,
        k: int,
        at: Operands,
        dtype: str,
        tiles: Sequence[tuple[int, int, int, int]] = _TRITON_MANY_ROWS,
    ) -> Iterator[Attempt]:
        """Attempts with tiles for many rows; 8-bit operands have no scales."""
        element = TRITON_TYPES[dtype]
        for tile_m, tile_n, of_16_bits, waves in tiles:
            tile_k = of_16_bits * (2 if element.startswith("fp8") else 1)
            launch = self._launch(
                "gemm",
                {"a": at.a, "b": at.b, "out": at.out},
                {"m": m, "n": n, "k": k, "k_of_split": k},
                {"TILE_M": tile_m, "TILE_N": tile_n, "TILE_K": tile_k, "EVEN_K": k % tile_k == 0},
                (-(-n // tile_n), -(-m // tile_m), 1),
                waves,
                "bf16" if element.startswith("fp8") else element,
                element,
            )
            if launch.dynamic_lds_bytes <= self._arch.lds_bytes:
                yield Attempt(f"{tile_m} x {tile_n} x {tile_k}", (launch,))

    def _launch(
        self,
        kernel: str,
        pointers: dict[str, int],
        values: dict[str, int],
        constants: dict[str, int],
        grid: tuple[int, int, int],
        waves: int,
        of_parts: str,
        element: str = "bf16",
    ) -> Launch:
        names = (*pointers, *values)
        whole = [name for name in names if name in pointers or values[name] % 16 == 0]
        key = (kernel, *constants.items(), waves, of_parts, element, *whole)
        if key not in self._compiled:
            from triton import compile as compile_source
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource

            # Beside this file, whether that is a script's or a package's module.
            triton_gemm = import_module(f"{__package__ or ''}.triton_gemm".lstrip("."))
            types = dict.fromkeys(pointers, f"*{element}") | dict.fromkeys(values, "i32")
            types["out" if kernel == "gemm" else "parts"] = f"*{of_parts}"
            # What Triton's own launcher would find.
            facts = {(names.index(name),): [["tt.divisibility", 16]] for name in whole}
            self._compiled[key] = compile_source(
                ASTSource(
                    getattr(triton_gemm, kernel),
                    types | dict.fromkeys(constants, "constexpr"),
                    constants,
                    facts,
                ),
                target=GPUTarget("hip", self._arch.name, _LANES_PER_WAVE),
                options={"num_warps": waves, "num_stages": 2},
            )
        compiled = self._compiled[key]
        packed = struct.pack(
            f"<{len(pointers)}Q{len(values)}i", *pointers.values(), *values.values()
        )
        # Two addresses that the compiler appends: global scratch and profile scratch, unused.
        packed += bytes(-len(packed) % 8 + 16)
        return Launch(
            compiled.asm["hsaco"],
            compiled.metadata.name,
            grid,
            (waves * _LANES_PER_WAVE, 1, 1),
            packed,
            compiled.metadata.shared,
        )
