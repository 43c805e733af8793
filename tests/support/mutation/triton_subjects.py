"""A dozen kernels compiled by Triton, with launches that reach their paths.

The code objects are made where the tests run, for the device that is bound; none is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from amdattn.device import runtime
from benchmarks.checker_mutation.subject import Buffer, Case, Subject, read_only, unwritten
from tests.support.mutation import triton_locked
from tests.support.peers import triton_kernels, triton_library, triton_program

Array = NDArray[Any]
BF16 = ml_dtypes.bfloat16
# The fp8 of an architecture's matrix instructions.
FP8 = {"gfx942": ml_dtypes.float8_e4m3fnuz, "gfx950": ml_dtypes.float8_e4m3fn}


class _Compiled(triton_program.Program):
    """A kernel that is compiled, and recorded instead of loaded."""

    image: bytes
    symbol: str

    def __init__(self, function: Any, *args: Any, **options: Any) -> None:
        def record(image: bytes, symbol: str) -> None:
            self.image, self.symbol = image, symbol

        load, triton_program.Kernel = triton_program.Kernel, record
        try:
            super().__init__(function, *args, **options)
        finally:
            triton_program.Kernel = load

    def case(self, name: str, grid: Sequence[int], roles: str, args: Sequence[Any]) -> Case:
        """A launch; `roles`: i (read only), o (written), u (updated), z (zero at the end)."""
        buffers: list[Buffer] = []
        pointers: list[tuple[int, int]] = []
        layout, values = "<", []
        arrays = iter(roles)
        for i, arg in enumerate(args):
            if not isinstance(arg, np.ndarray):
                layout += "i" if isinstance(arg, int) else "f"
                values.append(arg)
                continue
            layout += triton_program._pad(layout, 8)
            pointers.append((struct.calcsize(layout), len(buffers)))
            layout += "Q"
            values.append(0)
            buffers.append(_buffer(f"argument {i}", next(arrays), arg))
        kernarg = struct.pack(layout + triton_program._pad(layout, 8) + "QQ", *values, 0, 0)
        x, y = (*grid, 1)[:2]
        return Case(
            name,
            (x, y, 1),
            (self._lanes, 1, 1),
            kernarg,
            tuple(pointers),
            tuple(buffers),
            self.dynamic_lds_bytes,
        )


def _buffer(name: str, role: str, array: Array) -> Buffer:
    data = array.tobytes()
    return {
        "i": lambda: read_only(name, data),
        "o": lambda: unwritten(name, len(data)),
        "u": lambda: Buffer(name, len(data), data, output=True),
        "z": lambda: Buffer(name, len(data), data, contract="zero_at_end"),
    }[role]()


def _subject(
    name: str,
    function: Any,
    roles: str,
    launches: Sequence[Any],
    **options: Any,
) -> Subject:
    """Compile for the types of the first launch's arguments; all launches have the same types."""
    program = _Compiled(function, *launches[0][1], **options)
    cases = tuple(
        program.case(f"{i} grid {grid}", grid, *(own_roles or [roles]), args)
        for i, (grid, args, *own_roles) in enumerate(launches)
    )
    return Subject(f"triton {name}", program.image, program.symbol, cases)


def _normal(*shape: int, dtype: Any = np.float32) -> Array:
    rng = np.random.default_rng(sum(shape))
    return rng.standard_normal(shape, np.float32).astype(dtype)


def _matmul(
    name: str, dtype: Any, tile: tuple[int, int, int], num_waves: int, shapes: Any
) -> Subject:
    launches = []
    for m, n, k in shapes:
        args = (_normal(m, k, dtype=dtype), _normal(k, n + 0, dtype=dtype))
        grid = (-(-m // tile[0]), -(-n // tile[1]))
        launches.append((grid, (*args, np.zeros((m, n), np.float32), m, n, k)))
    constants = dict(zip(("TILE_M", "TILE_N", "TILE_K"), tile, strict=True))
    return _subject(name, triton_kernels.matmul, "iio", launches, num_waves=num_waves, **constants)


def _attention(name: str, causal: bool) -> Subject:
    launches = []
    for seqlen_q, seqlen_kv, heads_q, heads_kv in (
        (77, 100, 2, 1),
        (130, 160, 1, 1),
        (40, 20, 1, 1),
    ):
        q, out = _normal(seqlen_q, heads_q, 64, dtype=BF16), np.zeros((seqlen_q, heads_q, 64), BF16)
        k, v = (_normal(seqlen_kv, heads_kv, 64 + i, dtype=BF16)[..., :64].copy() for i in (0, 1))
        lse = np.zeros((heads_q, seqlen_q), np.float32)
        scale = float(64**-0.5 * np.log2(np.e))
        args = (q, k, v, out, lse, scale, seqlen_q, seqlen_kv, heads_q, heads_kv)
        launches.append(((-(-seqlen_q // 64), heads_q), args))
    constants = {"CAUSAL": causal, "HEAD_DIM": 64, "TILE_Q": 64, "TILE_KV": 32}
    return _subject(name, triton_kernels.attention_forward, "iiioo", launches, **constants)


def _elementwise(function: str, dtype: Any = np.float32) -> Subject:
    def launch(n: int, large: float) -> Any:
        x = (np.random.default_rng(n).random(n) * 4 + 0.05).astype(dtype)
        x[::3] *= large  # lanes of a wave that reduce their argument in another way
        return (-(-n // 256),), (x, np.zeros(n, dtype), n)

    launches = [launch(777, 1.0), launch(256, 1e6 if function == "sin" else 1.0)]
    return _subject(
        function, triton_library.elementwise, "io", launches, FUNCTION=function, TILE=256
    )


def _rows(function: Any, name: str, columns: Sequence[int], tile: int, num_waves: int) -> Subject:
    launches: list[Any] = []
    for n in columns:
        if function is triton_kernels.softmax:
            args = (4 * _normal(3, n), np.zeros((3, n), np.float32), n)
        else:
            weight, bias = _normal(n, dtype=BF16), _normal(n, dtype=BF16) + BF16(1)
            out = np.zeros((3, n), BF16)
            args = (_normal(3, n, dtype=BF16), weight, bias, out, n, 1e-5)
        launches.append(((3,), args))
    roles = "io" if function is triton_kernels.softmax else "iiio"
    if function is triton_kernels.layer_norm:  # no columns: its loops run zero times
        *arrays, _, epsilon = launches[0][1]
        launches.append(((3,), (*arrays, 0, epsilon), "iiiu"))
    return _subject(name, function, roles, launches, num_waves=num_waves, TILE=tile)


def _division() -> Subject:
    rng = np.random.default_rng(3)
    launches = []
    for n in (500, 512):
        a, b = rng.integers(-(1 << 62), 1 << 62, (2, n), np.int64)
        b[::3] = rng.integers(1, 100, b[::3].shape)
        a[::5] = rng.integers(1, 100, a[::5].shape)
        launches.append(((1,), (a, b, np.zeros_like(a), np.zeros_like(a), n)))
    return _subject("divide_integers", triton_library.divide_integers, "iioo", launches, TILE=512)


def _order() -> Subject:
    launches = []
    rising = np.random.default_rng(4).permutation(128).astype(np.float32) - 50
    for x in (rising, rising[::-1].copy()):  # the greatest lies with one wave, then the other
        launches.append(((1,), (x, np.zeros_like(x), np.zeros_like(x), np.zeros(1, np.int32))))
    return _subject("order", triton_library.order, "iooo", launches, num_waves=2, TILE=128)


def _transpose() -> Subject:
    x = np.random.default_rng(5).integers(-100, 100, (64, 128)).astype(np.float16)
    args = (x, np.zeros((128, 64), np.float16))
    return _subject(
        "transpose", triton_library.transpose, "io", [((1,), args)], ROWS=64, COLUMNS=128
    )


def _scatter_add(name: str, dtype: Any) -> Subject:
    """Atomic addition in memory, or for 16 bits a loop around compare-and-swap."""
    rng = np.random.default_rng(6)
    x = rng.integers(1, 3, 777).astype(dtype)
    index = rng.integers(0, 37, x.size).astype(np.int32)
    total = np.zeros(64, dtype)
    launches = [((4,), (x, index, total, x.size))]
    return _subject(name, triton_library.scatter_add, "iiu", launches, TILE=256)


def _lock() -> Subject:
    x = np.random.default_rng(7).integers(0, 1000, (5, 64)).astype(np.int32)
    args = (np.zeros(1, np.int32), np.zeros(64, np.int32), x)
    return _subject(
        "locked_accumulate",
        triton_locked.locked_accumulate,
        "zui",
        [((5,), args)],
        num_waves=1,
        TILE=64,
    )


def triton_subjects() -> list[Subject]:
    """The dozen."""

    def vector_add(n: int) -> Any:
        return (-(-n // 1024),), (_normal(n), _normal(n + 1)[:n].copy(), np.zeros(n, np.float32), n)

    return [
        _subject(
            "vector_add",
            triton_kernels.vector_add,
            "iio",
            [vector_add(n) for n in (1000, 2048)],
            TILE=1024,
        ),
        _rows(triton_kernels.softmax, "softmax, 1 wave", (77, 128), 128, 1),
        _rows(triton_kernels.softmax, "softmax, 4 waves", (1000, 1024), 1024, 4),
        _rows(triton_kernels.layer_norm, "layer_norm", (300, 512), 512, 4),
        _matmul("matmul bf16", BF16, (64, 64, 32), 4, ((77, 53, 100), (128, 64, 96))),
        _matmul(
            "matmul fp8",
            FP8[runtime.device_props().arch],
            (64, 128, 64),
            8,
            ((77, 53, 200), (64, 128, 64)),
        ),
        _attention("attention", causal=False),
        _attention("attention causal", causal=True),
        _elementwise("sin"),
        _elementwise("erf"),
        _elementwise("exp", np.float64),
        _division(),
        _order(),
        _transpose(),
        _scatter_add("scatter_add f32", np.float32),
        _scatter_add("scatter_add f16", np.float16),
        _lock(),
    ]
