"""The kernels of the attention backward, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.ops.attention_backward.kernels import (
    BACKWARD,
    BACKWARD_GRID,
    ROUND,
    ROUND_GRID,
    ROWS,
    ROWS_GRID,
    SINKS,
    SINKS_GRID,
    SUM,
    SUM_GRID,
)
from build_scripts.limits import MAX_INT32, workgroups
from build_scripts.toolchain import CONSTEXPR_STEPS, LLVM22

_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
# head_dim, head_dim_v, tiles of 16 keys that each of the four waves of a workgroup has: as many as
# the registers hold dK and dV of. In the order of asm_src/attn_bwd/step_order.h, without a softcap;
# it has one object that adds to dq in the order of blocks, and one that does not.
_ORDERED = ((64, 64, 4), (128, 128, 3))
# In the compiler's order: with a softcap, and those that the other order does not fit.
_COMPILED = ((64, 64, 4), (128, 128, 2), (192, 128, 1), (256, 256, 1))
_WAVES, _TILE_KEYS = 4, 16
# Kept across the loop, they would be spilt.
_FEWER_SCALARS = ("-mllvm", "-disable-machine-licm", "-mllvm", "-enable-pre=0")
_INTERPRETER = ("-Xclang", "-fexperimental-new-constant-interpreter")
_MOST_ROWS = 32  # of a tile, of every architecture
# Row + diagonal + window must not overflow 32 bits.
_MAX_ROWS = 2**29
_MAX_SPLITS = 1024  # of a block of keys
_BUFFER_BYTES = 2**31  # that loads reach from the first row of a tile
_REASON = "as the main kernel, whose operands it makes or rounds"


def attention_backward_members() -> Iterator[dict[str, Any]]:
    """Every kernel."""
    for dtype in _ELEMENT:
        for shape in _ORDERED:
            yield _member(dtype, *shape, "", (False,), "ORDERED=true")
            yield _member(dtype, *shape, "_turns", (True,), "ORDERED=true", "TURNS=true")
        for shape in _COMPILED:
            capped = "_softcap" * (shape[:2] in {known[:2] for known in _ORDERED})
            yield _member(dtype, *shape, capped, (False, True))
        yield _small(
            *("rows", dtype, ROWS, ROWS_GRID, ("rows", "columns")),
            {"head_dims": [8, 256, 8], "head_dims_v": [8, 256, 8]},
        )
        yield _small("round", dtype, ROUND, ROUND_GRID, (), {"head_dims": [8, 256, 8]})
        yield _small(
            *("sum", dtype, SUM, SUM_GRID, ("rows", "columns")),
            {"head_dims": [8, 256, 8], "head_dims_v": [8, 256, 8]},
        )
    yield _small("sinks", "fp32", SINKS, SINKS_GRID, (), {})


def _limits(lanes: int) -> dict[str, int]:
    """The greatest problems that a grid of workgroups of `lanes` lanes covers."""
    return {
        "max_batch": MAX_INT32,
        "max_seqlen_q": _MAX_ROWS,
        "max_seqlen_kv": _MAX_ROWS,
        "max_num_heads_q": MAX_INT32,
        "max_num_splits": _MAX_SPLITS,
        **workgroups(lanes),
    }


def _member(
    dtype: str,
    head_dim: int,
    head_dim_v: int,
    wave_tiles: int,
    suffix: str,
    deterministic: tuple[bool, ...],
    *defines: str,
) -> dict[str, Any]:
    dims = f"d{head_dim}" if head_dim == head_dim_v else f"d{head_dim}x{head_dim_v}"
    keys = _WAVES * wave_tiles * _TILE_KEYS
    return {
        "name": f"attn_bwd_{dtype}_{dims}{suffix}",
        "source": "kernels/attn_bwd.hip",
        "header": "attn_bwd.h",
        "struct": "AttnBwdArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "as the other kernels of attention",
        "op": BACKWARD,
        "dtype": dtype,
        "params": {"head_dim": head_dim, "head_dim_v": head_dim_v},
        "tile": ("kv", "q"),
        "grid": BACKWARD_GRID,
        "accepts": {
            # First, last and step: columns are 16 bytes at a time.
            "head_dims": [8, head_dim, 8],
            "head_dims_v": [8, head_dim_v, 8],
            "causal": [False, True],
            "window_size": "any",
            # Least and greatest, where there is one.
            "softcaps": [0.0, 0.0] if defines else [2.0**-10, 2.0**10],
            "sinks": [False, True],
            "varlen": [False, True],
            "top_left": [False, True],
            "deterministic": list(deterministic),
            "gqa": True,
            "layouts": "any, unit last stride",
            "pointer_align_bytes": 16,
            "stride_multiple": 8,
            # Rows are addressed by 32-bit offsets within a tile.
            "kv_stride_seq": [0, _BUFFER_BYTES // 2 // keys - 1],
            "q_stride_seq": [0, _BUFFER_BYTES // 2 // _MOST_ROWS - 1],
            "dq_stride_seq": [0, _BUFFER_BYTES // 4 // _MOST_ROWS - 1],
        },
        "limits": _limits,
        "defines": (
            f"HEAD_DIM={head_dim}",
            f"HEAD_DIM_V={head_dim_v}",
            f"WAVE_TILES={wave_tiles}",
            f"ELEMENT={_ELEMENT[dtype]}",
            *defines,
        ),
        # The order of a step is worked out while it compiles; its registers are named. clang's
        # other interpreter takes a fifth of the time for it.
        "flags": (CONSTEXPR_STEPS, *_INTERPRETER) if defines else _FEWER_SCALARS,
        "names_acc": bool(defines),
    }


def _small(
    name: str, dtype: str, op: str, grid: str, tile: tuple[str, ...], accepts: dict[str, Any]
) -> dict[str, Any]:
    """One of the launches before and after the main one."""
    return {
        "name": f"attn_bwd_{name}" + (f"_{dtype}" if dtype in _ELEMENT else ""),
        "source": f"kernels/attn_bwd_{name}.hip",
        "header": f"attn_bwd_{name}.h",
        "struct": f"AttnBwd{name.title()}Args",
        "toolchain": LLVM22,
        "toolchain_reason": _REASON,
        "op": op,
        "dtype": dtype,
        "params": {},
        "tile": tile,
        "grid": grid,
        "accepts": accepts,
        "limits": workgroups,
        "defines": (f"ELEMENT={_ELEMENT[dtype]}",) if dtype in _ELEMENT else (),
    }
