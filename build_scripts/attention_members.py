"""The attention kernels of the build table: forward, for narrow windows, merging, gathering."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.ops.attention.select import GATHER_GRID, MERGE_GRID, WORK_GRID
from build_scripts.limits import MAX_GRID_LANES_X, MAX_GRID_YZ, MAX_INT32, workgroups
from build_scripts.toolchain import CONSTEXPR_STEPS, LLVM22

# Row + diagonal + window must not overflow 32 bits.
_MAX_ROWS = 2**30
# kUnitKeys of asm_src/attn/lds_layout.h: of a block, where it does not say.
_UNIT_KEYS = 32


def attention_members() -> Iterator[dict[str, Any]]:
    """Every kernel, as arguments of `build.KernelBuild`."""
    yield from _family()
    yield from (_narrow("bf16", 64, round_mode) for round_mode in ("rtne", "rtna", "rtz"))
    yield _narrow("fp16", 64, "rtne")
    yield {
        "name": "gather_rows",
        "source": "kernels/gather_rows.hip",
        "header": "gather_rows.h",
        "struct": "GatherRowsArgs",
        "toolchain": LLVM22,
        "toolchain_reason": "as the kernels that read what it writes",
        "op": "gather_rows",
        "dtype": "u16",
        "params": {"head_dim": 256},
        "tile": (),
        "grid": GATHER_GRID,
        "accepts": {"head_dims": [8, 256, 8], "pointer_align_bytes": 16, "stride_multiple": 8},
        "limits": gather_limits,
    }


def _archs(round_mode: str) -> tuple[str, ...]:
    """Architectures whose kernels round so: to nearest even all, otherwise in integer arithmetic.

    That is done where no instruction converts.
    """
    return tuple(
        arch.name
        for arch in ARCHITECTURES.values()
        if round_mode == "rtne" or not arch.converts_bf16
    )


def work_limits(lanes: int) -> dict[str, int]:
    """The greatest problems that a grid of workgroups of `lanes` lanes covers."""
    return {
        "max_batch": MAX_INT32,
        "max_seqlen_q": _MAX_ROWS,
        "max_seqlen_kv": _MAX_ROWS,
        "max_num_heads_q": MAX_INT32,
        **workgroups(lanes),
    }


def gather_limits(lanes: int) -> dict[str, int]:
    """The same of the kernel that gathers rows."""
    return {
        "max_batch": MAX_GRID_YZ,
        "max_num_heads_kv": MAX_GRID_YZ,
        "max_workgroups_x": MAX_GRID_LANES_X // lanes,
    }


def family_accepts(
    head_dim: int, round_mode: str, capped: bool, keys: int = _UNIT_KEYS, merged_parts: int = 0
) -> dict[str, Any]:
    """What a member of the attention forward family implements."""
    return {
        # First, last and step. Columns are 16 bytes at a time; those of O that one workgroup has
        # no room for are another's.
        "head_dims": [8, head_dim, 8],
        "head_dims_v": [8, 256, 8],
        "causal": [False, True],
        "window_size": "any",
        "max_window_keys": 2**31 - 1,
        # Least and greatest. A capped score is right to 2**-21 of the cap.
        "softcaps": [2.0**-10, 2.0**10] if capped else [0.0, 0.0],
        "dropout_p": [0.0],
        "round_mode": [round_mode],
        "return_lse": [False, True],
        "sinks": [False, True],
        "varlen": [False, True],
        "top_left": [False, True],
        "max_num_splits": 16,
        # Of a tile, that the last one of them merges: kMostMerged of asm_src/attn/shape.h.
        "max_merged_parts": merged_parts,
        "max_tile_heads": 1,
        # Of which a workgroup finds its tile itself: a lane has one (asm_src/attn/tile_order.h).
        "max_ordered_sequences": 64,
        "gqa": True,
        "layouts": "any, unit last stride",
        "pointer_align_bytes": 16,
        "stride_multiple": 8,
        # Rows of K and V are addressed by 32-bit offsets within a block.
        "kv_stride_seq": [0, 2**30 // keys - 1],
    }


def narrow_accepts(head_dim: int, round_mode: str) -> dict[str, Any]:
    """The same of a kernel for narrow windows."""
    return {
        **family_accepts(head_dim, round_mode, capped=False),
        "head_dims_v": [8, head_dim, 8],
        # Keys that a row sees: asm_src/attn/narrow.h, kMostKeys.
        "max_window_keys": 129,
        # Its parts have some of a tile's heads each, and are final.
        "max_tile_heads": 4,
        "max_ordered_sequences": 0,
        "max_num_splits": 1,
        # Rows of K and V are addressed by 32-bit offsets within 144 of them.
        "kv_stride_seq": [0, 2**22 - 1],
    }


# The attention forward family: dtype, head_dim, head_dim_v, q rows of a wave, rounding.
# As many rows as the registers hold: each operand from LDS then meets most rows. And fewer, for
# masks that cut tiles and grids that are small; those are named by their rows, without softcap.
# With 32 rows a wave two workgroups are on a CU.
_FAMILY = (
    ("bf16", 128, 128, 96, ("rtne", "rtna", "rtz")),
    ("bf16", 64, 64, 128, ("rtne", "rtna", "rtz")),
    ("bf16", 192, 128, 64, ("rtne", "rtna", "rtz")),
    ("bf16", 256, 128, 64, ("rtne", "rtna", "rtz")),
    ("fp16", 128, 128, 96, ("rtne",)),
    ("fp16", 64, 64, 128, ("rtne",)),
    ("fp16", 192, 128, 64, ("rtne",)),
    ("fp16", 256, 128, 64, ("rtne",)),
    ("bf16", 128, 128, 64, ("rtne", "rtna", "rtz")),
    ("bf16", 64, 64, 64, ("rtne", "rtna", "rtz")),
    ("fp16", 128, 128, 64, ("rtne",)),
    ("fp16", 64, 64, 64, ("rtne",)),
    ("bf16", 128, 128, 32, ("rtne", "rtna", "rtz")),
    ("fp16", 128, 128, 32, ("rtne",)),
)
# The same where matrix instructions take twice as many keys or columns and LDS transposes V: in
# their schedule (Cdna4 of asm_src/arch/target.h), with so many keys in a block, or still in the
# other one.
_FAMILY_OF_LONG_PRODUCTS = (
    ("bf16", 128, 128, 96, "Cdna4", 64),
    ("bf16", 64, 64, 128, "Cdna4", 64),
    ("bf16", 192, 128, 64, "Cdna4", 32),
    ("bf16", 256, 128, 64, "Cdna4", 32),
    ("fp16", 128, 128, 96, "Cdna4", 64),
    ("fp16", 64, 64, 128, "Cdna4", 64),
    ("fp16", 192, 128, 64, "Cdna4", 32),
    ("fp16", 256, 128, 64, "Cdna4", 32),
    ("bf16", 128, 128, 64, "Cdna4", 64),
    ("bf16", 64, 64, 64, "Cdna4", 64),
    ("fp16", 128, 128, 64, "Cdna4", 64),
    ("fp16", 64, 64, 64, "Cdna4", 64),
    ("bf16", 128, 128, 32, "Cdna4", 64),
    ("fp16", 128, 128, 32, "Cdna4", 64),
    ("bf16", 64, 64, 32, "Cdna4", 64),
    ("fp16", 64, 64, 32, "Cdna4", 64),
)
_ELEMENT = {"bf16": "kBf16", "fp16": "kF16"}
_ROUNDING = {"rtne": "kNearestEven", "rtna": "kNearestAway", "rtz": "kTowardZero"}
_WAVES = 4


_ATTENTION = {
    "header": "attn_fwd.h",
    "struct": "AttnFwdArgs",
    "toolchain": LLVM22,
}


def _member(
    op: str,
    arch: str,
    dtype: str,
    head_dim: int,
    head_dim_v: int,
    wave_rows: int,
    round_mode: str,
    capped: bool = False,
    by_rows: bool = False,
    target: str = "Cdna3",
    keys: int = _UNIT_KEYS,
) -> dict[str, Any]:
    """The forward kernel of a member of the family, or the one that merges its parts."""
    merges = op == "attn_merge"
    tile_rows = _WAVES * wave_rows
    dims = f"d{head_dim}" if head_dim == head_dim_v else f"d{head_dim}x{head_dim_v}"
    rows = f"_q{tile_rows}" * by_rows
    name = f"{op}_{dtype}_{dims}{rows}{'_softcap' * capped}_{round_mode}"
    defines = {
        "HEAD_DIM_V": str(head_dim_v),
        "ELEMENT": _ELEMENT[dtype],
        "ROUNDING": _ROUNDING[round_mode],
        **(
            {"TILE_ROWS": str(tile_rows)}
            if merges
            else {
                "HEAD_DIM": str(head_dim),
                "WAVE_ROWS": str(wave_rows),
                "CAPPED": str(capped).lower(),
                **({"TARGET": target} if target != "Cdna3" else {}),
                **({"KEYS": str(keys)} if keys != _UNIT_KEYS else {}),
            }
        ),
    }
    merges_itself = (target, head_dim, capped) == ("Cdna3", 128, False) and wave_rows > 32
    merged_parts = 8 if merges_itself else 0
    # Pairs of 64-bit addresses made by the compiler are more than there are SGPRs.
    pairs: tuple[str, ...] = ("-fno-slp-vectorize",) if capped and head_dim > 192 else ()
    if pairs and (target, dtype) == ("Cdna3", "fp16"):  # one SGPR less
        pairs += "-mllvm", "-disable-machine-cse"
    if capped and target == "Cdna4":  # else renewals are in the loop, the epilogue in no cache
        pairs += "-mllvm", "-force-loop-cold-block"
    accepts = (
        {"tile_rows": [tile_rows], "round_mode": [round_mode]}
        if merges
        else family_accepts(head_dim, round_mode, capped, keys, merged_parts)
    )
    return {
        **_ATTENTION,
        "name": name,
        "source": f"kernels/{op}.hip",
        "toolchain_reason": "neither LLVM 21 nor 22 spills; the order of the loop is the source's",
        "op": op,
        "dtype": dtype,
        "archs": (arch,),
        "params": {"head_dim": head_dim, "head_dim_v": head_dim_v},
        "tile": ("q",) if merges else ("q", "kv"),
        "grid": MERGE_GRID if merges else WORK_GRID,
        "accepts": accepts,
        "limits": workgroups if merges else work_limits,
        "names_acc": not merges,
        # Constants stay where they are used. Before a loop they take registers that it needs.
        "flags": () if merges else ("-mllvm", "-disable-machine-licm", *pairs, CONSTEXPR_STEPS),
        "defines": tuple(f"{name}={value}" for name, value in defines.items()),
    }


def _narrow(dtype: str, head_dim: int, round_mode: str) -> dict[str, Any]:
    """The forward kernel for narrow windows."""
    name = f"attn_fwd_{dtype}_d{head_dim}_narrow_{round_mode}"
    return {
        **_ATTENTION,
        "name": name,
        "source": "kernels/attn_fwd_narrow.hip",
        "toolchain_reason": "neither LLVM 21 nor 22 spills; 22 leaves fewer moves between "
        "registers",
        "op": "attn_fwd",
        "dtype": dtype,
        "archs": _archs(round_mode),
        "params": {"head_dim": head_dim, "head_dim_v": head_dim},
        "tile": ("q", "kv"),
        "grid": WORK_GRID,
        "accepts": narrow_accepts(head_dim, round_mode),
        "limits": work_limits,
        # Packed instructions would wait for the matrix unit.
        "flags": ("-fno-slp-vectorize",),
        "defines": (
            f"HEAD_DIM={head_dim}",
            f"ELEMENT={_ELEMENT[dtype]}",
            f"ROUNDING={_ROUNDING[round_mode]}",
        ),
    }


def _family() -> Iterator[dict[str, Any]]:
    """Every member, and the kernels that merge their parts: one for all parts that are alike."""
    for arch in ARCHITECTURES.values():
        if arch.converts_bf16:
            rows = [(*row[:4], ("rtne",), *row[4:]) for row in _FAMILY_OF_LONG_PRODUCTS]
        else:
            rows = [(*row, "Cdna3", _UNIT_KEYS) for row in _FAMILY]
        yield from _family_of(arch.name, rows)


def _family_of(arch: str, rows: Iterable[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    merged, largest = set(), set()
    for dtype, head_dim, head_dim_v, wave_rows, round_modes, target, keys in rows:
        by_rows = (dtype, head_dim, head_dim_v) in largest
        largest.add((dtype, head_dim, head_dim_v))
        for round_mode in round_modes:
            sizes = arch, dtype, head_dim, head_dim_v, wave_rows, round_mode
            for capped in (False,) if by_rows else (False, True):
                yield _member("attn_fwd", *sizes, capped, by_rows, target, keys)
            parts = dtype, head_dim_v, wave_rows, round_mode
            if parts not in merged:
                yield _member("attn_merge", *sizes, by_rows=by_rows)
            merged.add(parts)
