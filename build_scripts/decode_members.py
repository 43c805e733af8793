"""The kernels of attention over a cache, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.dtypes import as_dtype
from amdattn.ops.cache_attention.kernels import DECODE_GRID
from build_scripts import preload
from build_scripts.toolchain import LLVM22

_HEADER, _STRUCT = "attn_decode.h", "AttnDecodeArgs"
_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
# Most columns of a head, rows of an item, waves of a SIMD that registers are left for; of caches
# that are as q and in rows, and of others, which have fewer kernels.
_SHAPES = (
    (64, 16, 1),
    (64, 64, 1),
    (128, 16, 1),
    (128, 64, 1),
    (192, 16, 1),
    (192, 32, 1),
    (256, 32, 1),
)
_SHAPES_OF_OTHERS = ((128, 16, 1), (256, 16, 1))


def decode_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for arch in ARCHITECTURES.values():
        for dtype in _ELEMENT:
            for is_fp8 in (False, True):
                for packed in (False, True):
                    for shape in _SHAPES_OF_OTHERS if is_fp8 or packed else _SHAPES:
                        stored = arch.fp8 if is_fp8 else as_dtype(dtype).name
                        yield _member(arch.name, dtype, stored, packed, *shape)


def _member(
    arch: str, dtype: str, stored: str, packed: bool, columns: int, rows: int, waves: int
) -> dict[str, Any]:
    is_fp8 = as_dtype(stored).itemsize == 1
    defines = {
        "ELEMENT": _ELEMENT[dtype],
        "STORED": "kFp8" if is_fp8 else "kAsQ",
        "ORDER": "kPacked" if packed else "kRows",
        "COLUMNS": columns,
        "ROWS": rows,
        "MIN_WAVES": waves,
        **preload.defines(_HEADER, _STRUCT),
    }
    kind = f"{dtype}{'_fp8' * is_fp8}{'_packed' * packed}"
    return {
        "name": f"attn_decode_{kind}_d{columns}_q{rows}",
        "source": "kernels/attn_decode.hip",
        "header": _HEADER,
        "struct": _STRUCT,
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 as the other kernels",
        "op": "attn_decode",
        "dtype": dtype,
        "archs": (arch,),
        "params": {"columns": columns, "rows": rows, "kv_dtype": stored, "packed": packed},
        "tile": ("rows", "keys"),
        "grid": DECODE_GRID,
        "accepts": {},
        "flags": (*preload.FLAGS, "-mllvm", "-disable-machine-licm", "-fno-slp-vectorize"),
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
    }
