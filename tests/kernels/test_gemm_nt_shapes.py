"""The decode GEMM at sizes of models and at sizes of nothing, against float64. Slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import amdattn
from amdattn.arch.architectures import ARCHITECTURES
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem
from tests.support.gemm_family import Array, Call
from tests.support.problems import products
from tests.support.shipped import shipped

pytestmark = pytest.mark.slow

# 32 shapes of the decode grid, and 48 of models, with and without a bias.
DECODE = [(m, n, 7168) for n in (2560, 2880, 5120, 7168) for m in (1, 2, 4, 8, 16, 32, 64, 128)]
MODELS = [
    (m, n, k)
    for n, k in ((128, 2880), (640, 2880), (2112, 7168), (2880, 4096), (5120, 2880), (2880, 2048))
    for m in (1, 8, 32, 128)
]
# n, k; n is that of the result where a gate is part of the product.
GATED = {"activation": "silu_and_mul"}
PROJECTIONS = {
    "llama3-8b qkv": (6144, 4096, {}),
    "llama3-8b o": (4096, 4096, {}),
    "llama3-8b gate up": (14336, 4096, GATED),
    "llama3-8b down": (4096, 14336, {}),
    "llama3-70b qkv": (10240, 8192, {}),
    "llama3-70b o": (8192, 8192, {}),
    "llama3-70b gate up of 8": (3584, 8192, GATED),
    "llama3-70b down": (8192, 28672, {}),
    "llama3-70b down of 8": (8192, 3584, {}),
    "qwen3-30b qkv": (5120, 2048, {}),
    "qwen3-30b router": (128, 2048, {"out_dtype": "float32"}),
    "qwen3-32b qkv": (10240, 5120, {}),
    "qwen3-32b gate up of 4": (6400, 5120, GATED),
    "qwen3-32b down": (5120, 25600, {}),
    "gpt-oss qkv": (5120, 2880, {"bias": True}),
    "gpt-oss o": (2880, 4096, {"bias": True}),
    "gpt-oss router": (128, 2880, {"bias": True}),
    "deepseek-v3 q kv a": (2112, 7168, {}),
    "deepseek-v3 q b": (24576, 1536, {}),
    "deepseek-v3 kv b": (32768, 512, {}),
    "deepseek-v3 o": (7168, 16384, {}),
    "deepseek-v3 router": (256, 7168, {"out_dtype": "float32"}),
    "deepseek-v3 shared gate up": (2048, 7168, GATED),
    "deepseek-v3 shared down": (7168, 2048, {}),
}
_SOME = 1_000_003  # random elements, which are repeated in larger operands


def assert_rounded_once(out: Array, exact: Array) -> None:
    """99.9 % of the outputs, or all but a few of few outputs: it is a matter of chance."""
    others = int((out != exact).sum())
    assert others <= max(0.001 * out.size, 4), f"{others} of {out.size}"


@pytest.mark.parametrize(
    ("shape", "with_bias"),
    [*((shape, False) for shape in DECODE), *((s, b) for s in MODELS for b in (False, True))],
    ids=str,
)
def test_shapes_of_decoding(shape: tuple[int, int, int], with_bias: bool) -> None:
    call = Call(*shape, with_bias=with_bias)
    assert_rounded_once(call.check(), call.rounded())


@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections(name: str) -> None:
    """Whole products; of large ones a part of the columns is held against float64."""
    n, k, options = PROJECTIONS[name]
    given = {key: value for key, value in options.items() if key != "bias"}
    rng = np.random.default_rng([n, k])
    element = as_dtype("bfloat16").numpy()
    some = rng.standard_normal(_SOME, np.float32).astype(element)
    rows = n * (1 + (options is GATED))
    b = np.resize(some, (rows, k))
    bias = some[:rows] if options.get("bias") else None
    columns = rng.choice(n, min(n, 400), replace=False)
    of_b = np.concatenate([columns, n + columns]) if options is GATED else columns
    for m in (1, 5, 48):
        a = rng.standard_normal((m, k), np.float32).astype(element)
        out = amdattn.gemm_nt(
            amdattn.asarray(a), amdattn.asarray(b), bias=_on_device(bias), **given
        )
        call = Call(m, columns.size, k, options=given, with_bias=bias is not None)
        operands = (a, b[of_b]) if bias is None else (a, b[of_b], bias[of_b])
        found = out.numpy()[:, columns]
        call.hold(found, *operands)
        if options is not GATED and found.dtype == element:
            assert_rounded_once(found, call.rounded(*operands))


def _on_device(x: Array | None) -> amdattn.DeviceArray | None:
    return None if x is None else amdattn.asarray(x)


def test_random_shapes() -> None:
    """500 odd ones: at least 99.9 % of the outputs are the exact result rounded once."""

    def options(rng: np.random.Generator) -> dict[str, Any]:
        return {
            "split_k": int(rng.integers(0, 6)),
            "dtype": str(rng.choice(["bfloat16", "float16"])),
            "deterministic": bool(rng.integers(2)),
        }

    same = total = 0
    drawn = products(11, 500, (130, 300, 3000), options, multiples_of_k=(1, 2, 8))
    for i, (m, n, k, given) in enumerate(drawn):
        call = Call(m, n, k, "", given, with_bias=bool(i % 2))
        out = call.check()
        equal = int((out == call.rounded()).sum())
        same, total = same + equal, total + out.size
    print(f"{same} of {total} outputs are the exact result rounded once: {same / total:.5%}")
    assert same >= 0.999 * total


def test_the_greatest_m_of_a_kernel() -> None:
    """As many tiles along m as a grid has workgroups along y; the last rows are right, too."""
    rows = shipped("gemm_nt")
    kernel = min(rows, key=lambda row: row.accepts["max_m"])
    problem = GemmProblem(kernel.accepts["max_m"], 4, 8)
    props = runtime.device_props()
    choices = planning.choices(problem, props, (kernel,))
    choice = next(choice for choice in choices.items if choice.splits == 1)
    plan = GemmPlan.of(planning.build(problem, props, choice, choices))
    assert plan.launches[0].grid[1] == ARCHITECTURES[kernel.arch].grid_yz
    rng = np.random.default_rng(3)
    a, b = (
        rng.integers(-3, 4, (rows, problem.k)).astype(as_dtype(problem.dtype).numpy())
        for rows in (problem.m, problem.n)
    )
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_array_equal(np.asarray(plan.run(a, b)).astype(np.float64), exact)
