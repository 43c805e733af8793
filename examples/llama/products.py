"""Products of a pass: their plans, and 8-bit copies of what goes into those of 8-bit weights."""

from __future__ import annotations

from typing import Any

import amdattn

from .config import Config
from .weights import NORMED, Product, Weights

Array = amdattn.DeviceArray
Sizes = tuple[int, int, dict[str, Any]]  # columns of the result, of the input, options


def sizes(config: Config) -> dict[str, Sizes]:
    """Products of a layer."""
    c = config
    of_q, of_kv = c.heads * c.head_dim, c.heads_kv * c.head_dim
    return {
        "qkv": (of_q + 2 * of_kv, c.hidden, {"bias": c.qkv_bias}),
        "o": (c.hidden, of_q, {"bias": c.o_bias, "adds": "residual"}),
        "gate_up": (c.inner, c.hidden, {"bias": c.mlp_bias, "activation": "silu_and_mul"}),
        "down": (c.hidden, c.inner, {"bias": c.mlp_bias, "adds": "residual"}),
    }


class Eights:
    """Memory for rows in 8 bits and their scales; passes of fewer rows use the first elements."""

    def __init__(self, config: Config, dtype: Any, rows: int) -> None:
        widest = max(k for _, k, _ in sizes(config).values())
        self._elements = amdattn.empty((rows * widest,), dtype)
        self._scales = amdattn.empty((rows, 1), "float32")

    def of(self, rows: int, columns: int) -> tuple[Array, Array]:
        """Elements, (rows, columns), and scales, (rows, 1)."""
        return self._elements[: rows * columns].reshape((rows, columns)), self._scales[:rows]


class Products:
    """All of a pass of so many rows, of which so many make logits.

    With `norms_rows` those that follow a norm of a layer normalise their rows themselves.
    """

    def __init__(
        self,
        config: Config,
        weights: Weights,
        rows: int,
        logits: int,
        eights: Eights | None,
        norms_rows: bool,
    ) -> None:
        c, device, dtype = config, amdattn.device_props(), weights.dtype.name
        self._rows, self._eights = rows, eights
        self._plans: dict[str, Any] = {}
        self._quantised: dict[int, Any] = {}  # by columns
        for name, (n, k, more) in sizes(config).items():
            options = {"dtype": dtype, "aligned": k % 8 == 0, **more}
            if norms_rows and name in NORMED:
                options["rms_eps"] = c.epsilon
            if weights.eight_bits is not None:
                options |= {"dtype": weights.eight_bits.name, "out_dtype": dtype}
                options |= {"scale_a": "row", "scale_b": "row", "aligned": k % 16 == 0}
                if k not in self._quantised:
                    self._quantised[k] = amdattn.plan_quantize_fp8(
                        rows, k, dtype=dtype, device=device
                    )
            self._plans[name] = amdattn.plan_gemm(rows, n, k, device=device, **options)
        self._logits = amdattn.plan_gemm(
            *(logits, config.vocabulary, config.hidden),
            device=device,
            dtype=dtype,
            out_dtype="float32",
            aligned=config.hidden % 8 == 0,
        )
        self._workspaces: dict[int, Array] = {}

    def keep_workspaces(self) -> None:
        """Scratch memory of plans, which runs take from amdattn's cache otherwise."""
        for plan in (*self._plans.values(), *self._quantised.values(), self._logits):
            if plan.workspace.total_bytes:
                self._workspaces[id(plan)] = plan.new_workspace()

    @property
    def launches(self) -> int:
        """Of a layer."""
        found = sum(len(plan.launches) for plan in self._plans.values())
        if self._quantised:
            each = (self._quantised[k] for k in (plan.problem.k for plan in self._plans.values()))
            found += sum(len(plan.launches) for plan in each)
        return found

    @property
    def launches_of_logits(self) -> int:  # noqa: D102
        return len(self._logits.launches)

    def run(
        self,
        name: str,
        a: Array,
        product: Product,
        out: Array,
        stream: Any,
        residual: Array | None = None,
    ) -> None:
        """One of a layer, of its input."""
        scales = {}
        if product.scale is not None:
            a, scale = self._in_8_bits(a, stream)
            scales = {"scale_a": scale, "scale_b": product.scale}
        plan = self._plans[name]
        plan.run(
            *(a, product.weight),
            out=out,
            bias=product.bias,
            residual=residual,
            **scales,
            workspace=self._workspaces.get(id(plan)),
            stream=stream,
        )

    def run_logits(self, a: Array, head: Array, out: Array, stream: Any) -> None:
        """The last one."""
        workspace = self._workspaces.get(id(self._logits))
        self._logits.run(a, head, out=out, workspace=workspace, stream=stream)

    def _in_8_bits(self, a: Array, stream: Any) -> tuple[Array, Array]:
        assert self._eights is not None
        made, scale = self._eights.of(*a.shape)
        plan = self._quantised[a.shape[1]]
        workspace = self._workspaces.get(id(plan))
        plan.run(a, out=made, out_scale=scale, workspace=workspace, stream=stream)
        return made, scale
