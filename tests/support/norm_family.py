"""The kernels of RMS normalisation, and calls of one that watch all it may write."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

import amdattn
from amdattn.bench.kernels import Functions, Launch
from amdattn.device.kernarg import packer
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.ops.norm import planning
from amdattn.ops.norm.problem import NormProblem
from tests.support.shipped import shipped

Array = npt.NDArray[Any]
KERNELS = {row.name: row for row in shipped(planning.RMS_NORM)}
POISON = 0xFFA5  # a NaN of either type that no kernel writes
_GUARD = 8
_FUNCTIONS = Functions()
# Of float32 arithmetic, relative: the matrix unit adds up to 64 times, truncating, half of which is
# in the root; the rest is less than ten roundings.
_SLACK = 2.0**-17


class Rows:
    """Rows of 16-bit elements in device memory, `stride` elements apart, in the midst of poison.

    values : (rows, columns), optional
        What they hold; otherwise poison as well.
    stride : int, optional
        At least the columns, or as much below 0; default: rows lie next to each other.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        element: Any,
        values: Array | None = None,
        stride: int | None = None,
        offset: int = 0,
    ) -> None:
        rows, columns = shape
        self.stride = columns if stride is None else stride
        first = _GUARD + offset + max(0, -self.stride) * (rows - 1)
        self._element, self._has_values = element, values is not None
        starts = first + self.stride * np.arange(rows)
        self._where = starts[:, None] + np.arange(columns)
        bits = np.full(int(self._where.max()) + 1 + _GUARD, POISON, np.uint16)
        if values is not None:
            bits[self._where] = np.ascontiguousarray(values).view(np.uint16)
        self._array = amdattn.asarray(bits)
        self.address = self._array.address + 2 * first

    def taken(self) -> Array:
        """What they hold now; nothing around them may have changed, nothing in them be left."""
        bits = self._array.numpy()
        inside = bits[self._where]
        bits[self._where] = POISON
        assert (bits == POISON).all(), "written outside"
        assert self._has_values or not (inside == POISON).any(), "not written"
        return inside.view(self._element)


@dataclasses.dataclass(frozen=True)
class Call:
    """`rows` of `columns` by a kernel of the manifest.

    Attributes
    ----------
    pad, out_pad : int
        Elements between the rows of x and the residual, of out and the sum.
    offset : int
        Elements by which operands are shifted, which spoils their alignment.
    backward : bool
        Rows lie in memory from the last to the first.
    in_place : bool
        out is x, and sum the residual.
    """

    kernel: str
    rows: int
    columns: int
    residual: bool
    pad: int = 0
    out_pad: int = 0
    offset: int = 0
    backward: bool = False
    in_place: bool = False
    eps: float = 1e-5

    @property
    def spec(self) -> KernelSpec:
        """Of the kernel."""
        return KERNELS[self.kernel]

    @property
    def element(self) -> Any:
        """The numpy dtype."""
        return as_dtype(self.spec.dtype).numpy()

    @property
    def weight_element(self) -> Any:
        """Of the weight: the same, or float32."""
        return as_dtype(self.spec.params["weight_dtype"]).numpy()

    def inputs(self) -> list[Array]:
        """x, weight and the residual if there is one, normally distributed."""
        rng = np.random.default_rng([self.rows, self.columns])
        shapes = [(self.rows, self.columns), (self.columns,), (self.rows, self.columns)]
        made = [rng.standard_normal(shape, np.float32) for shape in shapes]
        made[1] = 1 + made[1] / 4
        elements = self.element, self.weight_element, self.element
        operands = zip(made, elements, strict=True)
        return [x.astype(element) for x, element in operands][: 2 + self.residual]

    def run(self, *arrays: Array) -> tuple[Array, Array | None]:
        """out and sum, from inside poison that must stay as it was."""
        x, weight, *residual = arrays or self.inputs()
        of_weight = weight[None].view(np.uint16)  # of float32 two each
        operands = {"x": self._rows(self.pad, x), "weight": self._rows(0, of_weight)}
        if residual:
            operands["residual"] = self._rows(self.pad, residual[0])
        if self.in_place:
            operands |= {"out": operands["x"]}
            operands |= {"sum": operands["residual"]} if residual else {}
        else:
            operands |= {
                name: self._rows(self.out_pad) for name in ("out", "sum")[: 1 + self.residual]
            }
        self.launch(operands)
        amdattn.synchronize()
        return operands["out"].taken(), operands["sum"].taken() if residual else None

    def cycles(self) -> int:
        """Modelled, at the peak clock, caches cold."""
        names = ("x", "residual", "out", "sum") if self.residual else ("x", "out")
        operands = {name: self._rows(0) for name in names}
        of_weight = self.columns * self.weight_element.itemsize // 2
        operands["weight"] = Rows((1, of_weight), self.element)
        amdattn.synchronize()
        with amdattn.virtual.profile(clock_mhz=2100) as profile:
            self.launch(operands)
            amdattn.synchronize()
        return profile.launches[0].cycles

    def launch(self, operands: dict[str, Rows]) -> None:
        """Queue it."""
        values: dict[str, int | float] = {
            **{"rows": self.rows, "columns": self.columns, "eps": self.eps},
            "inverse_columns": 1 / self.columns,
            **dict.fromkeys(("residual", "residual_stride", "sum", "sum_stride"), 0),
            **{name: rows.address for name, rows in operands.items()},
            **{f"{name}_stride": rows.stride for name, rows in operands.items()},
        }
        kernel = self.spec
        packed = packer(kernel)
        block = bytearray(packed.size)
        packed.pack_into(block, 0, *(values[name] for name in packed.names))
        grid = planning.grid(kernel, NormProblem((self.rows,), self.columns))
        image = kernel.read_code_object()
        Launch(image, kernel.symbol, grid, kernel.workgroup, bytes(block)).enqueue(_FUNCTIONS)

    def check(self, *arrays: Array) -> tuple[Array, Array | None]:
        """Run, and hold both results against float64."""
        arrays = arrays or tuple(self.inputs())
        out, total = self.run(*arrays)
        self.hold(out, total, *arrays)
        return out, total

    def hold(
        self, out: Array, total: Array | None, x: Array, weight: Array, *residual: Array
    ) -> None:
        """The sum to the bit, every other element within one rounding and float32's."""
        if residual:
            assert total is not None
            with np.errstate(invalid="ignore", over="ignore"):
                x = (x.astype(np.float64) + residual[0].astype(np.float64)).astype(self.element)
            nan = np.isnan(x)
            np.testing.assert_array_equal(np.isnan(total), nan)
            np.testing.assert_array_equal(total.view(np.uint16)[~nan], x.view(np.uint16)[~nan])
        exact = reference(x, weight, self.eps)
        bits, least = (8, 2.0**-134) if self.spec.dtype == "bfloat16" else (11, 2.0**-25)
        got = out.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
        finite = np.isfinite(exact)
        np.testing.assert_array_equal(got[np.isinf(exact)], exact[np.isinf(exact)])
        allowed = np.abs(exact[finite]) * (2.0**-bits + _SLACK) + least
        worst = float((np.abs(got[finite] - exact[finite]) / allowed).max(initial=0))
        assert worst <= 1, f"{self}: {worst:.3g} of what is allowed"

    def _rows(self, pad: int, values: Array | None = None) -> Rows:
        shape = (self.rows, self.columns) if values is None else (values.shape[0], values.shape[1])
        stride = (shape[1] + pad) * (-1 if self.backward else 1)
        return Rows(shape, self.element, values, stride, self.offset)


def reference(x: Array, weight: Array, eps: float) -> Array:
    """In float64, but for sums of squares that float32 cannot hold: those are infinite."""
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        total = (wide**2).sum(axis=1, keepdims=True)
        total[total > np.finfo(np.float32).max] = np.inf
        scale = 1 / np.sqrt(total / x.shape[1] + np.float64(np.float32(eps)))
        return np.asarray(wide * scale * weight.astype(np.float64))
