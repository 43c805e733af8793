"""The kernels of attention of many queries over a cache, besides those of attention itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.dtypes import as_dtype
from amdattn.ops.cache_attention.kernels import CACHE_ROWS, LSE_GRID, LSE_ROWS, ROWS_GRID
from build_scripts.limits import workgroups
from build_scripts.toolchain import LLVM22

_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}


def prefill_members() -> Iterator[dict[str, Any]]:
    """Every kernel, as arguments of `build.KernelBuild`."""
    for arch in ARCHITECTURES.values():
        for dtype in _ELEMENT:
            for is_fp8 in (False, True):
                stored = arch.fp8 if is_fp8 else as_dtype(dtype).name
                yield _member(arch.name, dtype, stored)
    yield {
        "name": "lse_rows",
        "source": "kernels/lse_rows.hip",
        "header": "lse_rows.h",
        "struct": "LseRowsArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "as the kernels whose results it copies",
        "op": LSE_ROWS,
        "dtype": "fp32",
        "params": {},
        "tile": (),
        "grid": LSE_GRID,
        "accepts": {},
        "limits": workgroups,
    }


def _member(arch: str, dtype: str, stored: str) -> dict[str, Any]:
    is_fp8 = as_dtype(stored).itemsize == 1
    defines = {"ELEMENT": _ELEMENT[dtype], "STORED": "kFp8" if is_fp8 else "kAsQ"}
    return {
        "name": f"cache_rows_{dtype}{'_fp8' * is_fp8}",
        "source": "kernels/cache_rows.hip",
        "header": "cache_rows.h",
        "struct": "CacheRowsArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "as the kernels that read what it writes",
        "op": CACHE_ROWS,
        "dtype": dtype,
        "archs": (arch,),
        "params": {"kv_dtype": stored},
        "tile": ("keys", "lanes"),
        "grid": ROWS_GRID,
        "accepts": {"head_dims": [8, 256, 8], "page_size_multiple": 16},
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
    }
