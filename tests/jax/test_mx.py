"""Products of MX types in JAX: called, compiled and mapped; what is not built is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn
import amdattn.jax as aj
from amdattn.device import manifest
from amdattn.ops.gemm import mx, planning
from amdattn.ops.gemm.problem import MX, GemmProblem

_HERE = amdattn.device_props().arch
pytestmark = pytest.mark.skipif(
    not any(
        row.arch == _HERE and row.op == planning.GEMM and row.accepts["scales"] == [MX]
        for row in manifest.kernels()
    ),
    reason="the device has no matrix instructions with scales",
)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float6_e2m3fn", "float4_e2m1fn"])
def test_called_compiled_and_mapped(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((rows, 256), np.float32) for rows in (70, 45))
    (a, of_a), (b, of_b) = (amdattn.quantize_mx(one, dtype) for one in (x, w))
    problem = GemmProblem(70, 45, 256, dtype, "float32", scale_a=MX, scale_b=MX)

    def product(*given: jax.Array) -> jax.Array:
        (out,) = aj.call("gemm", problem, "", *given)
        return out

    given = tuple(jnp.asarray(one) for one in (a, b, of_a, of_b))
    best = mx.values(a, of_a, dtype) @ mx.values(b, of_b, dtype).T
    for out in (product(*given), jax.jit(product)(*given)):
        assert np.abs(np.asarray(out) - best).max() <= 1e-6 * np.abs(best).max()
    stacked = (jnp.stack([given[0]] * 2), given[1], jnp.stack([given[2]] * 2), given[3])
    out = jax.vmap(product, (0, None, 0, None))(*stacked)
    assert np.abs(np.asarray(out[1]) - best).max() <= 1e-6 * np.abs(best).max()
