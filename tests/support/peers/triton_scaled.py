"""Triton's block-scaled matrix products on a virtual gfx950, as a program of its own.

Triton's layouts of operands and scales were made on the hardware and know nothing of ours: a
product that is right needs every element and every scale in its place. Run where AMDATTN_DEVICE
names a gfx950; prints a line for each product: size, types, instructions, the largest error by the
largest value.
"""

from __future__ import annotations

import itertools
import re
import struct
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.support.peers.peer_device import WAVE_LANES, Buffers, Kernel, read

TARGET = GPUTarget("hip", "gfx950", WAVE_LANES)
WAVES = 4
# Triton's name: the type, Triton's pointer, elements in a byte.
FORMATS: dict[str, tuple[Any, str, int]] = {
    "e4m3": (ml_dtypes.float8_e4m3fn, "*fp8e4nv", 1),
    "e5m2": (ml_dtypes.float8_e5m2, "*fp8e5", 1),
    "e2m1": (ml_dtypes.float4_e2m1fn, "*u8", 2),
}


@triton.jit
def product(
    a, a_scale, b, b_scale, d,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, A_PACK: tl.constexpr, B_PACK: tl.constexpr,
):  # fmt: skip
    """D = A times B transposed, one workgroup."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    ka, kb = tl.arange(0, K // A_PACK), tl.arange(0, K // B_PACK)
    block = tl.arange(0, K // 32)
    x = tl.load(a + i[:, None] * (K // A_PACK) + ka[None, :])
    y = tl.load(b + kb[:, None] + j[None, :] * (K // B_PACK))
    x_scale = tl.load(a_scale + i[:, None] * (K // 32) + block[None, :])
    y_scale = tl.load(b_scale + j[:, None] * (K // 32) + block[None, :])
    sums = tl.dot_scaled(x, x_scale, A, y, y_scale, B)
    tl.store(d + i[:, None] * N + j[None, :], sums)


def operand(
    rng: np.random.Generator, rows: int, k: int, name: str
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.float64]]:
    """Bytes, scales, and the values that both make."""
    kind, _, pack = FORMATS[name]
    if pack == 2:
        codes = rng.integers(0, 16, (rows, k), np.uint8)
        data, values = codes[:, 0::2] | codes[:, 1::2] << 4, codes.view(kind)
    else:
        values = rng.standard_normal((rows, k)).astype(kind)
        data = values.view(np.uint8)
    scales = rng.integers(120, 134, (rows, k // 32), np.uint8)
    factors = np.repeat(2.0 ** (scales.astype(int) - 127), 32, axis=1)
    return np.ascontiguousarray(data), scales, values.astype(np.float64) * factors


def check(tile: int, size: tuple[int, int, int], names: tuple[str, str], seed: int) -> str:
    """One product, with instructions of `tile` rows; the line to print."""
    m, n, k = size
    rng = np.random.default_rng(seed)
    a, a_scale, a_values = operand(rng, m, k, names[0])
    b, b_scale, b_values = operand(rng, n, k, names[1])
    d = np.full((m, n), np.nan, np.float32)
    constants = {
        **{"M": m, "N": n, "K": k, "A": names[0], "B": names[1]},
        **{"A_PACK": FORMATS[names[0]][2], "B_PACK": FORMATS[names[1]][2]},
    }
    types = (FORMATS[names[0]][1], "*u8", FORMATS[names[1]][1], "*u8", "*fp32")
    signature = dict(zip(product.arg_names, types, strict=False))
    facts = {(i,): [["tt.divisibility", 16]] for i in range(len(types))}
    source = ASTSource(product, signature | dict.fromkeys(constants, "constexpr"), constants, facts)
    options = {"num_warps": WAVES, "matrix_instr_nonkdim": tile}
    compiled = triton.compile(source, target=TARGET, options=options)
    used = sorted(set(re.findall(r"v_mfma\w+", compiled.asm["amdgcn"])))
    kernel = Kernel(compiled.asm["hsaco"], compiled.metadata.name)
    with Buffers() as buffers:
        at = [buffers.put(array) for array in (a, a_scale, b, b_scale, d)]
        kernarg = struct.pack("<7Q", *at, 0, 0)  # the compiler appends two addresses, unused
        kernel.launch((1, 1, 1), WAVES * WAVE_LANES, kernarg, compiled.metadata.shared)
        found = read(at[-1], d.shape, d.dtype)
    expected = a_values @ b_values.T
    error = np.abs(found - expected).max() / np.abs(expected).max()
    return f"{m}x{n}x{k} {names[0]} {names[1]} {','.join(used)} {error:.3g}"


def main() -> None:
    """Both tiles, all pairs of types."""
    for seed, (tile, names) in enumerate(
        itertools.product((16, 32), itertools.product(FORMATS, FORMATS))
    ):
        print(check(tile, (128, 64, 256), names, seed))


if __name__ == "__main__":
    main()
