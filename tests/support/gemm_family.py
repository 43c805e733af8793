"""The members of the families of products, and calls of one that watch all it may write."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import amdattn
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm import grids, planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import BLOCK, BLOCKS, FACTORS, LAYOUTS, MX, GemmProblem, by_k
from tests.support.attention.family import Guarded
from tests.support.shipped import shipped

Array = npt.NDArray[Any]
_EVERY = {row.name: row for row in shipped(planning.GEMM)}
NORMING = [row for row in _EVERY.values() if "norms_rows" in row.accepts]
KERNELS = [
    row for row in _EVERY.values() if as_dtype(row.dtype).itemsize > 1 and row not in NORMING
]
OF_BLOCKS = [row for row in _EVERY.values() if row.accepts["scales"] == [BLOCKS]]
_OF_MX = [row for row in _EVERY.values() if row.accepts["scales"] == [MX]]
_OTHERS = (*KERNELS, *NORMING, *OF_BLOCKS, *_OF_MX)
_OF_8_BITS = [row for row in _EVERY.values() if row not in _OTHERS]
OF_8_BITS = [row for row in _OF_8_BITS if grids.has_windows(row)]
FEW_ROWS_OF_8_BITS = [row for row in _OF_8_BITS if not grids.has_windows(row)]
_NAMES_OF_BLOCKS = {row.name for row in OF_BLOCKS}
_NAMES_OF_NORMING = {row.name for row in NORMING}
EPS = 1e-3  # of rows that a member normalises
# Of operands by rows; others are in test_gemm_tiles.py and test_gemm_layouts.py.
_NT = [row for row in KERNELS if row.accepts["layout"] == "nt"]
NAMES = [row.name for row in _NT]
WITH_FACTORS = [row.name for row in _NT if "silu_and_mul" in row.accepts["activation"]]
SMALL = "gemm_nt_bf16_m16n16k2"
# Those of float16 differ in the conversions and the matrix instruction only. Each is run by
# test_gemm_nt.py's test_every_member and test_parts_along_k; elsewhere, by default, three of them.
_FLOAT16 = (
    *("gemm_nt_fp16_m4n4", "gemm_nt_fp16_m32n32k2", "gemm_nt_fp16_any"),
    *(f"gemm_{layout}_fp16_t128x128" for layout in LAYOUTS),
)


def some(names: Iterable[str]) -> list[Any]:
    """Parameters of tests, of which most float16 ones are slow."""
    return [
        pytest.param(name, marks=() if "_bf16_" in name or name in _FLOAT16 else pytest.mark.slow)
        for name in names
    ]


SOME_NAMES = some(NAMES)
# Options by which a kernel for many rows leaves its loop in another way.
ENDS_OF_A_TILE: tuple[dict[str, Any], ...] = (
    {"out_dtype": "float32"},
    {"out_dtype": "float16", "alpha": -0.37},
    {"activation": "gelu"},
    {"activation": "silu_and_mul"},
    {"activation": "gelu_tanh_and_mul", "out_dtype": "float32"},
)
# Members that take parts along k.
SPLITTING = [row.name for row in _NT if row.accepts["max_splits"] > 1]
SOME_SPLITTING = [one for one in SOME_NAMES if one.values[0] in SPLITTING]
_OF_MANY_ROWS = [row.name for row in _NT if grids.has_windows(row)]
SOME_WITH_WIDTHS = [one for one in SOME_SPLITTING if one.values[0] not in _OF_MANY_ROWS]


def operands(
    m: int, n: int, k: int, dtype: str = "bfloat16", b_dtype: str = "", bias_dtype: str = ""
) -> tuple[Array, Array, Array]:
    """a, b and bias, normally distributed."""
    rng = np.random.default_rng([m, n, k])
    types = (dtype, b_dtype or dtype, bias_dtype or dtype)
    return tuple(
        rng.standard_normal(shape, np.float32).astype(as_dtype(one).numpy())
        for shape, one in zip(((m, k), (n, k), (n,)), types, strict=True)
    )


def planned(problem: GemmProblem, kernel: str = "", columns: int = 0) -> GemmPlan:
    """The plan with a kernel of this name, or with the one that the planner prefers.

    columns : of a tile; 0: as planned.
    """
    rows = [row for row in _EVERY.values() if kernel in ("", row.name)]
    props = amdattn.device_props()
    if not columns:
        return GemmPlan.of(planning.plan_gemm(problem, props, rows))
    choices = planning.choices(problem, props, rows)
    (found,) = (choice for choice in choices.items if choice.columns == columns)
    return GemmPlan.of(planning.build(problem, props, found, choices))


def adds_in_order(plan: GemmPlan) -> bool:
    """Whether parts are added in their order: sums in memory need no zeros then."""
    return plan.problem.deterministic or grids.has_windows(plan.kernel)


def _gelu_tanh(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu(x: Array) -> Array:
    return x * np.vectorize(lambda one: math.erfc(-one / math.sqrt(2)) / 2)(x)


def _of_elements(name: str, scales: Array, k: int) -> Array:
    """Of the rows or elements of an operand, or a few rows more."""
    if scales.ndim == 1:
        return scales.astype(np.float64)[:, None]
    rows = 1 if name == "scale_a" else BLOCK
    return scales.astype(np.float64).repeat(rows, 0).repeat(BLOCK, 1)[:, :k]


ACTIVATIONS = {"silu": lambda x: x / (1 + np.exp(-x)), "gelu_tanh": _gelu_tanh, "gelu": _gelu}


@dataclasses.dataclass(frozen=True)
class Call:
    """A product with a kernel of the manifest ("": the planner's)."""

    m: int
    n: int
    k: int
    kernel: str = ""
    columns: int = dataclasses.field(default=0, kw_only=True)  # of a tile; 0: as planned
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    with_bias: bool = True

    @property
    def dtype(self) -> str:
        """Of the inputs."""
        default: str = _EVERY[self.kernel].dtype if self.kernel else "bfloat16"
        return self.options.get("dtype", default)

    @property
    def problem(self) -> GemmProblem:
        """Of the kernel's types."""
        types: dict[str, Any] = {"dtype": self.dtype}
        if self.kernel:
            types["b_dtype"] = _EVERY[self.kernel].accepts["b_dtype"][0]
            if self.kernel in _NAMES_OF_BLOCKS:
                types |= {"scale_a": BLOCKS, "scale_b": BLOCKS}
            if self.kernel in _NAMES_OF_NORMING:
                types["rms_eps"] = EPS
        options = {**types, "bias": self.with_bias, "layout": self.layout, **self.options}
        return GemmProblem(self.m, self.n, self.k, **options)

    @property
    def layout(self) -> str:
        """Of the kernel, or as the options say."""
        known: str = self.options.get("layout", "nt")
        return self.kernel.split("_")[1] if self.kernel else known

    def plan(self) -> GemmPlan:
        """On the bound device."""
        return planned(self.problem, self.kernel, self.columns)

    @property
    def has_factors(self) -> bool:
        """Whether b has 2 n rows."""
        return str(self.options.get("activation")).endswith(FACTORS)

    def inputs(self) -> list[Array]:
        """a, b and the bias if there is one."""
        of = self.problem
        made = operands(self.m, of.b_rows, self.k, of.dtype, of.b_dtype, of.bias_dtype)
        return list(made)[: 2 + self.with_bias]

    def scales(self) -> dict[str, Array]:
        """Those that the options name, from 2^-3 to 2^3 and of either sign."""
        rng = np.random.default_rng([self.m, self.n])
        return {
            name: (np.exp2(rng.uniform(-3, 3, shape)) * rng.choice([-1, 1], shape)).astype("f4")
            for name, shape in self.problem.input_shapes.items()
            if name.startswith("scale")
        }

    def stored(self, arrays: Sequence[Any]) -> list[Any]:
        """As the layout has them; what is on the device is already."""
        are_by_k = (*by_k(self.layout), False)
        return [
            np.ascontiguousarray(x.T) if isinstance(x, np.ndarray) and is_by_k else x
            for x, is_by_k in zip(arrays, are_by_k, strict=False)
        ]

    def run(self, *arrays: Any, stream: Any = None, guard: int = 8) -> Array:
        """The result from inside a larger buffer of NaN, of which the rest must stay as it was.

        The workspace is longer than needed, too, and its counters are 0 again behind the launch.
        """
        plan = self.plan()
        out = Guarded((self.m, self.n), as_dtype(plan.problem.out_dtype).numpy(), guard)
        a, b, *bias = (
            x if isinstance(x, amdattn.DeviceArray) else amdattn.asarray(x)
            for x in self.stored(arrays or self.inputs())
        )
        more: dict[str, Any] = {"bias": bias[0]} if bias else {}
        more |= {name: amdattn.asarray(x) for name, x in self.scales().items()}
        if plan.workspace.total_bytes:
            more["workspace"] = workspace = plan.new_workspace()
        amdattn.synchronize()
        plan.run(a, b, out.inner, stream=stream, **more)
        amdattn.synchronize()
        if plan.workspace.total_bytes:
            zeros = plan.workspace["counters"].nbytes if adds_in_order(plan) else None
            assert not workspace.numpy()[:zeros].any(), "counters, or sums, are not 0"
        return out.taken()

    def check(self, *arrays: Array) -> Array:
        """Run, and hold the result against float64."""
        out = self.run(*arrays)
        self.hold(out, *(arrays or self.inputs()))
        return out

    def hold_bits_and_checks(self, first: Array) -> None:
        """Equal bits whatever the order of waves and workgroups; checked mode finds nothing."""
        for seed in (1, 2):
            amdattn.virtual.set_option("seed", seed)
            try:
                with amdattn.virtual.check():
                    again = self.run()
            finally:
                amdattn.virtual.set_option("seed", 0)
            assert again.tobytes() == first.tobytes()

    def hold(self, out: Array, a: Array, b: Array, bias: Array | None = None) -> None:
        """Every element within one rounding and the error of float32 sums."""
        exact, slack = self.reference(a, b, bias)
        got = out.astype(np.float64)
        bits = {"bfloat16": 8, "float16": 11, "float32": 24}[out.dtype.name]
        error = np.abs(got - exact)
        subnormal = 2.0**-25 if out.dtype.name == "float16" else 0.0  # half of the least number
        bound = np.maximum(np.abs(exact) * 2.0**-bits, subnormal) + slack
        assert (error <= bound).all(), f"{(error / bound).max():.3g} of what is allowed"

    def rounded(self, *arrays: Array) -> Array:
        """The exact result, rounded once."""
        exact, _ = self.reference(*(arrays or self.inputs()))
        element = as_dtype(self.problem.out_dtype).numpy()
        return exact.astype(np.float32).astype(element)

    def reference(self, a: Array, b: Array, bias: Array | None = None) -> tuple[Array, Array]:
        """The exact result, and by how much float32 sums may miss it."""
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        scales = {name: _of_elements(name, x, self.k) for name, x in self.scales().items()}
        wide_a, wide_b = (
            x * scales.get(name, np.ones(1))[: len(x)]
            for name, x in (("scale_a", wide_a), ("scale_b", wide_b))
        )
        if (eps := self.problem.rms_eps) is not None:
            wide_a /= np.sqrt(np.mean(wide_a**2, axis=1, keepdims=True) + eps)
        alpha = float(self.options.get("alpha", 1.0))
        exact = alpha * (wide_a @ wide_b.T)
        terms = abs(alpha) * (np.abs(wide_a) @ np.abs(wide_b).T)
        if bias is not None:
            exact = exact + bias.astype(np.float64)
            terms = terms + np.abs(bias.astype(np.float64))
        # Sums of 64 products truncate, sums of those round; most errors cancel.
        slack = terms * 2.0**-22 + 2.0**-24
        activation = self.options.get("activation")
        if activation is None:
            return exact, slack
        of = ACTIVATIONS[activation.removesuffix(FACTORS)]
        # No activation is steeper than 1.2; their own error is relative.
        if not self.has_factors:
            value = of(exact)
            return value, 1.2 * slack + np.abs(value) * 2.0**-18
        (gate, factor), (gate_slack, slack) = (np.split(x, 2, axis=1) for x in (exact, slack))
        value, slack_of_value = of(gate), 1.2 * gate_slack + np.abs(of(gate)) * 2.0**-18
        return value * factor, np.abs(value) * slack + (np.abs(factor) + slack) * slack_of_value
