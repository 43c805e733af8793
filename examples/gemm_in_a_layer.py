"""The gated MLP of a decoder layer for a few tokens: two products, the activation inside the first.

    python examples/gemm_in_a_layer.py

`gemm_nt(x, [gate; up], activation="silu_and_mul")` is silu(x @ gate.T) * (x @ up.T), rounded once.
The result is held against float64, by the error that rounding of the layer's middle and end costs.
"""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.table import Table

import amdattn

TOKENS, HIDDEN, INTERMEDIATE = 4, 512, 768
UNIT = 2.0**-8  # half a bfloat16's spacing, of its value


def main() -> int:
    """Compute, compare, print; the exit code."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        scaled = rng.standard_normal(shape) / np.sqrt(shape[-1])
        return scaled.astype(ml_dtypes.bfloat16)

    x = rng.standard_normal((TOKENS, HIDDEN)).astype(ml_dtypes.bfloat16)
    gate_up, bias = weights(2 * INTERMEDIATE, HIDDEN), weights(2 * INTERMEDIATE)
    down, down_bias = weights(HIDDEN, INTERMEDIATE), weights(HIDDEN)

    # Weights stay on the device; the layer's input and output come and go.
    gate_up_d, bias_d, down_d, down_bias_d = map(amdattn.asarray, (gate_up, bias, down, down_bias))
    middle = amdattn.gemm_nt(amdattn.asarray(x), gate_up_d, bias=bias_d, activation="silu_and_mul")
    y = amdattn.gemm_nt(middle, down_d, bias=down_bias_d).numpy().astype(np.float64)

    wide = [array.astype(np.float64) for array in (x, gate_up, bias, down, down_bias)]
    both = wide[0] @ wide[1].T + wide[2]
    gate, up = both[:, :INTERMEDIATE], both[:, INTERMEDIATE:]
    exact_middle = gate / (1 + np.exp(-gate)) * up
    exact = exact_middle @ wide[3].T + wide[4]
    # Each element of the middle is rounded once, and each of the result.
    allowed = UNIT * (np.abs(exact_middle) @ np.abs(wide[3]).T + np.abs(exact))
    share = np.abs(y - exact) / allowed

    table = Table("product", "kernel", "splits", title=f"{TOKENS} tokens of {HIDDEN}")
    device = amdattn.device_props()
    for name, n, k, activation in (
        ("gate and up", INTERMEDIATE, HIDDEN, "silu_and_mul"),
        ("down", HIDDEN, INTERMEDIATE, None),
    ):
        plan = amdattn.plan_gemm(TOKENS, n, k, bias=True, activation=activation, device=device)
        table.add_row(name, plan.kernel.name, str(plan.splits))
    console = Console()
    console.print(table)
    console.print(f"largest error {share.max():.2f} of what rounding may cost")
    return 0 if share.max() <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
