"""Problems for the kernels of docs/studies/found.md: arguments in device memory, and what is right.

How each kernel is launched is a fact of the host code in ROCm/aiter (csrc/py_itfs_cu, csrc/cpp_itfs
and aiter/ops/flydsl). Nothing of the objects is here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from amdattn.device import runtime
from amdattn.device.code_object import read_kernels
from benchmarks.peers.aiter import pack
from tests.support.peers.peer_device import Buffers, Kernel, attention, read

Array = NDArray[np.float64]
BF16, FP8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fnuz


@dataclass(frozen=True)
class Problem:
    """One launch that can be repeated.

    Attributes
    ----------
    launch : callable
        Launches and waits.
    result : callable
        The output, as float64.
    expected : array
        What it should be.
    """

    launch: Callable[[], None]
    result: Callable[[], Array]
    expected: Array

    def wrong(self, tolerance: float) -> float:
        """The part of the elements that err by more than that part of the greatest one."""
        error = np.abs(self.result() - self.expected)
        return float((~(error <= tolerance * np.abs(self.expected).max())).mean())


def load(path: Path) -> Kernel:
    """The only kernel of a code object."""
    image = path.read_bytes()
    (symbol,) = read_kernels(image, str(path))
    return Kernel(image, symbol)


def slots(*values: int | float | tuple[int]) -> bytes:
    """AITER's argument blocks: 16 bytes each for an address (a tuple), an integer or a float."""
    packed = b""
    for value in values:
        if isinstance(value, tuple):
            packed += struct.pack("<Q8x", *value)
        else:
            packed += struct.pack("<f12x" if isinstance(value, float) else "<I12x", value)
    return packed


def normal(*shape: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _floats(x: NDArray[Any]) -> Array:
    with np.errstate(invalid="ignore"):  # NaN of unwritten memory
        return x.astype(np.float64)


def dq_convert(path: Path, buffers: Buffers) -> Problem:
    """float32 gradients of one head to 16 bits."""
    kernel = load(path)
    (head_dim,) = map(int, re.findall(r"hd(\d+)", path.name))
    dtype = BF16 if "bf16" in path.name else np.float16
    rows = 64
    given = normal(rows, head_dim)
    out = buffers.put(np.full((rows, head_dim), np.nan, dtype))
    lengths = buffers.put(np.array([0, rows], np.int32))
    size = rows * head_dim
    arguments = slots(
        *((buffers.put(given),), (out,), 4 * size, 4 * size, 4 * head_dim),
        *(2 * head_dim, 2 * size, 2 * head_dim, rows, head_dim, (lengths,), (lengths,)),
    )
    return Problem(
        lambda: kernel.launch((1, 1, 1), 256, arguments),
        lambda: _floats(read(out, (rows, head_dim), dtype)),
        given.astype(np.float64),
    )


def i8gemm(path: Path, buffers: Buffers) -> Problem:
    """8-bit GEMM with a scale for each row and column; one tile."""
    kernel = load(path)
    m, n = map(int, re.findall(r"(\d+)x(\d+)\.co", path.name)[0])
    k = 512
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-100, 100, (rows, k), np.int8) for rows in (m, n))
    scale_a, scale_b = rng.random((m, 1), np.float32), rng.random((1, n), np.float32)
    shuffled = b.reshape(n // 16, 16, k // 32, 2, 16).transpose(0, 2, 3, 1, 4)
    out = buffers.unwritten((m, n), BF16)
    inputs = (a, shuffled, scale_a, scale_b, np.zeros(n, np.float32))
    addresses = [(buffers.put(x),) for x in inputs]
    arguments = slots((out,), *addresses, m, n, k, k, k, 2 * n, 1)
    return Problem(
        lambda: kernel.launch((1, 1, 1), 256, arguments),
        lambda: read(out, (m, n), BF16).astype(np.float64),
        (a.astype(np.int64) @ b.T.astype(np.int64)) * scale_a.astype(np.float64) * scale_b,
    )


def fp8_attention(path: Path, buffers: Buffers, descale: float, rows: int = 512) -> Problem:
    """Attention of one head with 8-bit q, k, v; `descale` is q's."""
    kernel = load(path)
    causal = "causal" in path.name
    q, k, v = (x.astype(FP8) for x in normal(3, rows, 1, 128))
    out = buffers.unwritten((rows, 1, 128), BF16)
    fields: dict[str, int | float] = {
        **{"o": out, "lse": buffers.unwritten((rows,), np.float32)},
        **{"softmax_scale": 128**-0.5, "seqlen_q": rows, "seqlen_kv": rows, "num_heads_q": 1},
        **{"q_stride_tile": 256 * 128, "q_heads_per_kv_head": 1, "tuning": 3 if causal else 5},
        **{"head_dim": 128, "head_dim_v": 128, "lse_stride_head": 4 * rows},
        **{"o_stride_seq": 256, "o_stride_head": 256, "o_stride_batch": 256 * rows},
    }
    for name, x, factor in (("q", q, descale), ("k", k, 1.0), ("v", v, 1.0)):
        fields[name] = buffers.put(x)
        fields[f"{name}_stride_seq"] = fields[f"{name}_stride_head"] = 128
        fields[f"{name}_stride_batch"] = 128 * rows
        fields[f"{name}_descale"] = buffers.put(np.full(1, factor, np.float32))
        fields[f"{name}_descale_stride_batch"] = fields[f"{name}_descale_stride_head"] = 4
    tiles = -(-rows // 256)
    grid = (-(-tiles // 2) if causal else tiles, 1, 1)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    return Problem(
        lambda: kernel.launch(grid, 512, pack(fields)),
        lambda: read(out, (rows, 1, 128), BF16).astype(np.float64),
        attention(descale * q, k, v, causal)[0],
    )


def mla_decode(
    path: Path, buffers: Buffers, tokens: int, heads: int = 16, splits: int = 2
) -> Problem:
    """MLA decode of some tokens a sequence, latents of 8 or 16 bits, one token a page."""
    kernel = load(path)
    dtype = FP8 if "a8w8" in path.name else BF16
    batch, length, width = 2, 300, 576
    rng = np.random.default_rng(1)
    num_pages = batch * length + 5
    q = (0.5 * normal(batch * tokens, heads, width)).astype(dtype)
    kv = (0.5 * rng.standard_normal((num_pages, width), np.float32)).astype(dtype)
    pages = rng.permutation(num_pages)[: batch * length].astype(np.int32)
    shape = (batch * tokens, splits, heads, 512)
    out, lse = buffers.unwritten(shape, np.float32), buffers.unwritten(shape[:3], np.float32)
    starts = np.arange(batch + 1, dtype=np.int32)
    one = buffers.put(np.ones(1, np.float32))
    arguments = slots(
        *((out,), (lse,), (buffers.put(q),), (buffers.put(kv),), (buffers.put(length * starts),)),
        *((buffers.put(pages),), (buffers.put(np.ones(batch, np.int32)),), width**-0.5),
        *(heads * tokens, splits, q[:tokens].nbytes, kv[0].nbytes, 0),
        *((buffers.put(tokens * starts),), (buffers.put(splits * starts),), (0,), (one,), (one,)),
        *(0, (0,), (0,), 1, 0),
    )

    def result() -> Array:
        weights = read(lse, shape[:3], np.float32).astype(np.float64)
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return (read(out, shape, np.float32) * weights[..., None]).sum(axis=1)

    expected = np.zeros((batch * tokens, heads, 512))
    for row in range(batch * tokens):
        sequence, token = divmod(row, tokens)
        seen = length - (tokens - 1 - token)
        keys = kv[pages[sequence * length :][:seen]].astype(np.float64)
        scores = q[row].astype(np.float64) @ keys.T * width**-0.5
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected[row] = weights / weights.sum(axis=1, keepdims=True) @ keys[:, :512]
    return Problem(lambda: kernel.launch((1, batch, splits), 256, arguments), result, expected)


def paged_decode(path: Path, buffers: Buffers, length: int = 1000) -> Problem:
    """Paged attention for one token, 16 tokens a page; K and V of 16 or 8 bits."""
    kernel = load(path)
    (heads,) = map(int, re.findall(r"gqa(\d+)", path.name))
    dtype = BF16 if "bf16" in path.name else np.float16
    batch, page, width = 2, 16, 128
    per_row = -(-length // page)
    num_pages = batch * per_row + 3
    q = normal(batch, heads, width).astype(dtype)
    k, v = normal(2, num_pages, page, width, seed=2)
    scale = 1.0
    if "noquant" in path.name:
        k, v = k.astype(dtype), v.astype(dtype)
    elif "Fp8" in path.name:
        k, v = k.astype(FP8), v.astype(FP8)
    else:
        scale = 1 / 40
        k, v = (np.clip(np.rint(x / scale), -127, 127).astype(np.int8) for x in (k, v))
    unit = 16 // k.itemsize  # elements that lie together
    scales = buffers.put(np.full((num_pages, page), scale, np.float32))
    table = np.random.default_rng(1).permutation(num_pages)[: batch * per_row].astype(np.int32)
    out = buffers.unwritten(q.shape, dtype)
    inputs = (
        *(q, k.reshape(num_pages, page, width // unit, unit).transpose(0, 2, 1, 3)),
        *(v.reshape(num_pages, page // unit, unit, width).transpose(0, 1, 3, 2), table),
        np.full(batch, length, np.int32),
    )
    size = k[0].nbytes
    arguments = slots(
        *((out,), *((buffers.put(x),) for x in inputs), (scales,), (scales,)),
        *(float(np.log2(np.e)) * width**-0.5, per_row, 1, q[0].nbytes, size, size, 0),
        *(heads, (0,)),
    )
    expected = np.zeros(q.shape)
    for row in range(batch):
        pages = table[row * per_row : (row + 1) * per_row]
        keys, values = (
            scale * x[pages].reshape(-1, 1, width)[:length].astype(np.float64) for x in (k, v)
        )
        expected[row] = attention(q[row : row + 1], keys, values, False)[0][0]
    return Problem(
        lambda: kernel.launch((1, batch, 1), 256, arguments),
        lambda: read(out, q.shape, dtype).astype(np.float64),
        expected,
    )


def topk_decode(path: Path, buffers: Buffers, length: int = 20000) -> Problem:
    """The 2048 greatest of one row; the result is sorted values, since indices may come anyhow."""
    kernel = load(path)
    logits = normal(1, length)
    out = buffers.unwritten((2048,), np.int32)
    given, lengths = buffers.put(logits), buffers.put(np.array([length], np.int32))
    arguments = struct.pack("<3Q3i", given, lengths, out, length, 1, 1)
    return Problem(
        lambda: kernel.launch((1, 1, 1), 1024, arguments),
        lambda: np.sort(logits[0][read(out, (2048,), np.int32)]).astype(np.float64),
        np.sort(logits[0])[-2048:].astype(np.float64),
    )


def split_k(path: Path, buffers: Buffers) -> Problem:
    """FlyDSL's split-K HGEMM on small integers: 16-bit sums of parts are exact enough."""
    kernel = load(path)
    n, k = map(int, re.findall(r"n(\d+)_k(\d+)_", path.name)[0])
    tile_m, tile_n, splits, *waves = map(
        int, re.findall(r"(\d+)x(\d+)x\d+x\d+_SPK(\d+)_W(\d+)x(\d+)x(\d+)", path.name)[0]
    )
    m = 16
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-2, 3, (rows, k)).astype(BF16) for rows in (m, n))
    before = np.full((m, n), 3, BF16)
    out = buffers.put(before)
    counters = buffers.put(np.zeros(8192, np.int32))
    inputs = (out, buffers.put(a), buffers.put(b), buffers.put(np.zeros(n, BF16)))
    arguments = struct.pack("<4Qi4x2Q", *inputs, m, counters, counters + 4 * 4096)
    grid = (-(-m // tile_m) * (n // tile_n), splits, 1)

    def launch() -> None:
        runtime.get().upload(out, before.ctypes.data, before.nbytes)
        kernel.launch(grid, 64 * int(np.prod(waves)), arguments)

    return Problem(
        launch,
        lambda: read(out, (m, n), BF16).astype(np.float64),
        a.astype(np.float64) @ b.T.astype(np.float64),
    )
