"""The members of the decode GEMM family, as arguments of `build.KernelBuild`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amdattn.arch.architectures import ARCHITECTURES, Architecture
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm.grids import PARTS
from amdattn.ops.gemm.problem import SCALES_OF_ROWS, by_k
from build_scripts import preload
from build_scripts.limits import MAX_GRID_YZ
from build_scripts.toolchain import LLVM22

_HEADER, _STRUCT = "gemm.h", "GemmArgs"
_OF_8_BITS = "gemm_8bit.h", "Gemm8BitArgs"
_OF_NORMS = "gemm_rms.h", "GemmRmsArgs"
_OF_ANY = "gemm_any.h", "GemmAnyArgs"  # alignment, and number of products

# Rows of a fragment, fragments along m and along n of a wave, waves along m and along k, steps of k
# in flight. Chosen by the model, among twice as many: one wave a workgroup, where registers allow,
# ends soonest; more rows of both where A would be read too often; few rows of n keep HBM busy
# without splits.
_ALIGNED = (
    ("m4n4", 4, 1, 1, 1, 1, 24),
    ("m8n8", 8, 1, 1, 1, 1, 24),
    ("m16n16k1", 16, 1, 1, 1, 1, 8),
    ("m16n16k2", 16, 1, 1, 1, 2, 8),
    ("m16n32", 16, 1, 2, 1, 1, 6),
    ("m32n16", 16, 2, 1, 1, 1, 4),
    ("m32n32k1", 16, 2, 2, 1, 1, 4),
    ("m32n32k2", 16, 2, 2, 1, 2, 4),
    ("m32n48", 16, 2, 3, 1, 2, 4),
    ("m64n32", 16, 4, 2, 1, 4, 2),
    ("m64n64", 16, 4, 4, 1, 4, 2),
)
# Others, and others of the same name, where a matrix instruction takes twice as much of k: more
# results of a wave pay, and of rows that are needed twice more is in flight.
_OF_LONG_PRODUCTS = (
    ("m32n32k2", 16, 2, 2, 1, 2, 6),
    ("m64n48", 16, 4, 3, 1, 2, 3),
    ("m64n128", 16, 4, 8, 1, 4, 2),
)
# Members that normalise rows of a, whole rows of which a wave has. They have no parts along k.
_NORMING, RMS = ("m16n16k1", "m16n32", "m32n16", "m32n32k1"), "rms_"
_ANY = ("any", 16, 1, 1, 1, 4, 1)  # any alignment, element by element
# Of 8-bit types a step has twice the elements in as many bytes. Others of the table were within 2 %
# of one of these, or never the fastest. Of two different types, which gradients have, fewer.
_OF_ONE_8_BIT_TYPE = ("m8n8", "m16n16k1", "m16n32", "m32n32k1", "m32n32k2", "m32n48", "m64n64")
_OF_TWO_8_BIT_TYPES = ("m16n16k1", "m32n32k1", "m64n64")
ELEMENTS = {"bf16": "kBf16", "fp16": "kF16"}
# Types of a and of b by the name of a kernel: what the architecture calls them.
NAMES_OF_8_BITS = ("e4m3", "e4m3_e5m2", "e5m2_e4m3", "e5m2")
_MATRIX, _LINE = 16, 64
_ALONE = (None, "silu", "gelu_tanh", "gelu")
OUT_DTYPES = ["float32", "bfloat16", "float16"]
ACTIVATIONS = [*_ALONE, *(f"{name}_and_mul" for name in _ALONE if name)]

_XCDS = 8  # of the grid: tiles of n that workgroups go round robin over
_MAX_INDEX = 2**30  # indices of a tile behind the last one must fit 32 bits, too
_MAX_SPLITS = 4096  # far below what the 16 bits of an arrival count hold
# 64 rows are addressed by offsets of 31 bits.
MAX_ALIGNED_STRIDE = 2**24 - 1


def gemm_members() -> Iterator[dict[str, Any]]:
    """Every member."""
    for arch in ARCHITECTURES.values():
        others = _OF_LONG_PRODUCTS if arch.converts_bf16 else ()
        aligned = {member[0]: member for member in (*_ALIGNED, *others)}
        for dtype in ELEMENTS:
            for member in (*aligned.values(), _ANY):
                yield _member(arch, dtype, "nt", *member)
            for name in _NORMING:
                _, *sizes = aligned[name]
                yield _member(arch, dtype, "nt", RMS + name, *sizes)
            for layout in ("nn", "tn"):
                yield _member(arch, dtype, layout, *_ANY)
        for dtype in NAMES_OF_8_BITS:
            for name in _OF_TWO_8_BIT_TYPES if "_" in dtype else _OF_ONE_8_BIT_TYPE:
                yield _member(arch, dtype, "nt", *aligned[name])
            yield _member(arch, dtype, "nt", *_ANY)


def types_of(arch: Architecture, dtype: str) -> tuple[str, str]:
    """Element types of a and of b by their name in that of a kernel."""
    of_a, of_b = (dtype.split("_") * 2)[:2]
    types = {"e4m3": arch.fp8, "e5m2": arch.bf8}
    return types.get(of_a, of_a), types.get(of_b, of_b)


def of_product(
    arch: str,
    dtype: str,
    name_of_tile: str,
    header: str,
    struct: str,
    defines: dict[str, Any],
    layout: str = "nt",
) -> dict[str, Any]:
    """What members for few rows and for many have in common; `defines`: besides the arguments'."""
    defines = {**defines, **preload.defines(header, struct)}
    return {
        "name": f"gemm_{layout}_{dtype}_{name_of_tile}",
        "header": header,
        "struct": struct,
        "toolchain": LLVM22,
        "toolchain_reason": "neither LLVM 21 nor 22 spills; the order of the loop is the source's",
        "op": "gemm_nt",
        "dtype": dtype,
        "archs": (arch,),
        "tile": ("m", "n"),
        "defines": tuple(f"{key}={value}" for key, value in defines.items()),
        "flags": preload.FLAGS,
    }


def _member(
    arch: Architecture,
    dtype: str,
    layout: str,
    name_of_tile: str,
    tile: int,
    tiles_m: int,
    tiles_n: int,
    waves_m: int,
    waves_k: int,
    depth: int,
) -> dict[str, Any]:
    any_alignment = name_of_tile == "any"
    is_8_bit, norms_rows = dtype in NAMES_OF_8_BITS, name_of_tile.startswith(RMS)
    of_a, of_b = types_of(arch, dtype)
    if is_8_bit:
        kinds = (f"ByteElement::k{one.capitalize()}" for one in (dtype.split("_") * 2)[:2])
        elements = f"Bytes<{', '.join(kinds)}>"
    else:
        elements = f"Words<Element::{ELEMENTS[dtype]}>"
    per_word = 2 if is_8_bit else 1  # elements of 16 bits
    are_by_k = ", ".join(str(int(one)) for one in by_k(layout))
    defines = {
        "TILE": tile,
        "TILES_M": tiles_m,
        "TILES_N": tiles_n,
        "WAVES_M": waves_m,
        "WAVES_K": waves_k,
        "DEPTH": depth,
        "ELEMENTS": elements,
        "LAST": 4 * tiles_m * (tiles_n + norms_rows) - 1,
        "MAINLOOP": f"ElementMainloop<S, {are_by_k}>" if any_alignment else "Mainloop<S>",
        **({"HAS_SCALES": 1} if is_8_bit else {}),
        **({"NORMS_ROWS": 1} if norms_rows else {}),
    }
    header, struct = _OF_8_BITS if is_8_bit else (_HEADER, _STRUCT)
    if norms_rows:
        header, struct = _OF_NORMS
    if any_alignment:
        defines["ANY_ALIGNMENT"] = 1
        header, struct = _OF_ANY
    return {
        **of_product(arch.name, dtype, name_of_tile, header, struct, defines, layout),
        "dtype": of_a,
        "source": "kernels/gemm_nt.hip",
        "params": {
            "mfma": tile,
            "step": max(_LINE, 512 // tile) * (1 if any_alignment else per_word),
            "waves_k": waves_k,
            "steps_in_flight": depth,
        },
        "grid": PARTS,
        "accepts": {
            "b_dtype": [as_dtype(of_b).name],
            "scales": [None, *SCALES_OF_ROWS] if is_8_bit else [None],
            "pointer_align_bytes": 2 // per_word if any_alignment else 4,
            "stride_multiple": 1 if any_alignment else 2 * per_word,
            "row_stride": [-(2**31), 2**31 - 1] if any_alignment else [0, MAX_ALIGNED_STRIDE],
            "layout": layout,
            "m_multiple": 1,
            "n_multiple": 1,
            "k_multiple": 1 if any_alignment else 8 * per_word,
            "out_dtype": OUT_DTYPES,
            "activation": [one for one in ACTIVATIONS if tile == _MATRIX or one in _ALONE],
            "max_m": MAX_GRID_YZ * tile * tiles_m * waves_m,
            "max_n": MAX_GRID_YZ * _XCDS * tile * tiles_n,
            "max_k": _MAX_INDEX if any_alignment else MAX_ALIGNED_STRIDE,
            "max_splits": 1 if norms_rows else _MAX_SPLITS,
            **({"norms_rows": True} if norms_rows else {}),
            "max_products": MAX_GRID_YZ if any_alignment else 0,
        },
        "names_acc": not any_alignment,
    }
