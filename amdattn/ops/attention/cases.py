"""Attention forward as an operation: its options, cases, and expected results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.device import manifest
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.operation import Case, Expected, Operation
from amdattn.ops.attention import planning, reference
from amdattn.ops.attention.command_options import OPTIONS, problem_of
from amdattn.ops.attention.execution import AttentionPlan
from amdattn.ops.attention.plans import planned
from amdattn.ops.attention.problem import VARLEN_LAYOUT, AttentionProblem, axis_order
from amdattn.ops.attention.scheduling import SCHEDULE
from amdattn.ops.attention.select import ATTENTION, GATHER, MERGE, mismatches


@dataclass(frozen=True)
class AttentionCase(Case[AttentionProblem]):
    """Attention on normally distributed inputs.

    Attributes
    ----------
    lengths : tuple of (int, int)
        Rows of q and of k of every sequence, for a problem of several lengths.
    packed : bool
        Whether q, k and v are slices of one array.
    special : bool
        Whether some rows of q are NaN or infinite.
    scale_v : float
        Factor of v.
    """

    lengths: tuple[tuple[int, int], ...] = ()
    packed: bool = False
    special: bool = False
    scale_v: float = 1

    @property
    def title(self) -> str:
        """One line for people."""
        lengths = f" lengths {self.lengths}" if self.lengths else ""
        scaled = f" v*{self.scale_v:g}" if self.scale_v != 1 else ""
        return (
            super().title + lengths + scaled + " packed" * self.packed + " NaN/inf" * self.special
        )

    @property
    def layout(self) -> str:
        """The layout of the arrays."""
        return VARLEN_LAYOUT if self.problem.varlen else self.variant or "bshd"

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand, the same for the same seed."""
        problem, rng = self.problem, np.random.default_rng(seed)
        element = as_dtype(problem.dtype).numpy()

        def normal(shape: tuple[int, ...]) -> NDArray[Any]:
            return rng.standard_normal(shape, np.float32)

        if self.packed:
            batch, rows, heads, dim = problem.shape("q", "bshd")
            qkv = normal((batch, rows, 3, heads, dim)).astype(element)
            arrays = dict(zip("qkv", np.moveaxis(qkv, 2, 0), strict=True))
        else:
            arrays = {name: normal(problem.shape(name, self.layout)) for name in "qkv"}
            if self.special:
                # With positive keys, rows of NaN, of only -inf and of only +inf scores.
                arrays["k"] = np.abs(arrays["k"])
                rows = arrays["q"].reshape(-1, problem.head_dim)
                rows[3], rows[5], rows[11] = np.nan, -np.inf, np.inf
            arrays["v"] = arrays["v"] * np.float32(self.scale_v)
            arrays = {name: x.astype(element) for name, x in arrays.items()}
        if problem.sinks:
            arrays["sinks"] = normal((problem.num_heads_q,))
        if self.lengths:
            sums = np.cumsum([(0, 0), *self.lengths], axis=0, dtype=np.int32)
            arrays["cu_seqlens_q"] = np.ascontiguousarray(sums[:, 0])
            arrays["cu_seqlens_kv"] = np.ascontiguousarray(sums[:, 1])
        return arrays


def expected(case: AttentionCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Out and lse in float64, with the allowed error of each element.

    The error is a fraction of sum p |v|, because p, the sum of the rounded p, and o are rounded and
    scores are float32.
    """
    problem = case.problem
    layout = "bshd" if problem.varlen else case.layout
    options: dict[str, Any] = {
        "causal": problem.causal,
        "window_size": problem.window_size,
        "sinks": inputs.get("sinks"),
        "softcap": problem.softcap,
        "top_left": problem.top_left,
    }
    bits = 8 if problem.dtype == "bfloat16" else 11
    rounding = 2.0 ** (1 - bits if problem.round_mode == "rtz" else -bits)
    parts: list[tuple[NDArray[Any], ...]] = []
    for sequence in _sequences(case, inputs):
        q, k, v = (x.astype(np.float64) for x in sequence)
        with np.errstate(invalid="ignore"):
            scale = problem.softmax_scale
            out, lse = reference.attention(q, k, v, scale, layout, **options)
            terms, _ = reference.attention(q, k, np.abs(v), scale, layout, **options)
        reach = 4 * problem.softcap
        reach += _longest(q) * _longest(k) * abs(scale or 1)
        keys = k.shape[axis_order(layout).index("seq")]
        absolute = 2.0**-24 * (keys + 1) if problem.dtype == "float16" else 2.0**-120
        allowed = (3 * rounding + 2.0**-20 * (1 + reach)) * terms + absolute
        allowed_lse = 2e-6 * (1 + np.abs(lse)) + 2.0**-22 * reach
        parts.append((out, allowed, lse, allowed_lse))
    rows = axis_order(layout).index("seq")
    out, allowed, lse, allowed_lse = (
        np.concatenate(column, axis=2 if i > 1 else rows)
        for i, column in enumerate(zip(*parts, strict=True))
    )
    if problem.varlen:
        out, allowed, lse, allowed_lse = out[0], allowed[0], lse[0], allowed_lse[0]
    found = {"o": Expected(out, allowed)}
    if problem.return_lse:
        found["lse"] = Expected(lse, allowed_lse)
    return found


def _longest(x: NDArray[Any]) -> float:
    """The greatest length of a row of finite numbers."""
    lengths = np.linalg.norm(x, axis=-1)
    return float(lengths[np.isfinite(lengths)].max(initial=0.0))


def _sequences(
    case: AttentionCase, inputs: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[NDArray[Any], ...]]:
    arrays = [inputs[name] for name in "qkv"]
    if not case.lengths:
        yield tuple(arrays)
        return
    begin_q = begin_k = 0
    for rows, keys in case.lengths:
        q = arrays[0][None, begin_q : begin_q + rows]
        k, v = (x[None, begin_k : begin_k + keys] for x in arrays[1:])
        begin_q, begin_k = begin_q + rows, begin_k + keys
        if rows:
            yield q, k, v


# -- cases -----------------------------------------------------------------------------------------


def case(
    seqlen_q: int = 0,
    seqlen_kv: int = 0,
    batch: int = 1,
    num_heads_q: int = 1,
    num_heads_kv: int = 1,
    head_dim: int = 128,
    *,
    layout: str = "bshd",
    lengths: tuple[tuple[int, int], ...] = (),
    kernel: str = "",
    packed: bool = False,
    special: bool = False,
    scale_v: float = 1,
    **options: Any,
) -> AttentionCase:
    """A case of these sizes and `options` of `AttentionProblem`, or of sequences of `lengths`."""
    if lengths:
        rows, keys = zip(*lengths, strict=True)
        if not (sum(rows) and sum(keys)):
            raise ValueError(f"lengths={lengths} must have a row of q and one of k at least")
        batch, seqlen_q, seqlen_kv = len(rows), max(rows), max(keys)
        options |= {"total_q": sum(rows), "total_kv": sum(keys)}
    problem = AttentionProblem(
        *(batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim), **options
    )
    variant = "" if layout == "bshd" else layout
    return AttentionCase(problem, variant, kernel, lengths, packed, special, scale_v)


# Around the tiles (384 rows of Q, 32 of KV) and around powers of two, with GQA, MQA, several batch
# entries, both layouts and strided operands.
_GENERAL: tuple[Mapping[str, Any], ...] = (
    *(
        dict(seqlen_q=n, seqlen_kv=n)
        for n in (1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 383, 384, 385)
    ),
    dict(seqlen_q=1, seqlen_kv=257),
    dict(seqlen_q=257, seqlen_kv=1),
    dict(seqlen_q=33, seqlen_kv=511, num_heads_q=4, num_heads_kv=2),
    dict(seqlen_q=65, seqlen_kv=129, num_heads_q=8),
    dict(seqlen_q=129, seqlen_kv=65, batch=2, num_heads_q=3, num_heads_kv=3),
    dict(seqlen_q=100, seqlen_kv=130, num_heads_q=3, layout="bhsd"),
    dict(seqlen_q=97, seqlen_kv=97, num_heads_q=2, num_heads_kv=2, packed=True),
    dict(seqlen_q=65, seqlen_kv=65, softmax_scale=-0.25),
    dict(seqlen_q=40, seqlen_kv=70, special=True),
    # Of such lengths the device makes the order of tiles, and cuts some: each workgroup, or, of so
    # many, a launch before.
    dict(lengths=((40, 1000), (3, 50), (0, 9)), num_heads_q=2, causal=True),
    dict(
        lengths=((40, 2000), (3, 50), (0, 9), *((0, 1),) * 60, (1, 0), (2, 2)),
        **{"num_heads_q": 2, "causal": True},
    ),
)
# Rows of K and V copied together first: the kernel of that, at a head size that is no power of two.
_GATHERED: tuple[Mapping[str, Any], ...] = (
    dict(
        **dict(seqlen_q=33, seqlen_kv=130, batch=2, num_heads_q=3, num_heads_kv=3),
        **dict(head_dim=72, head_dim_v=40, gather="kv"),
    ),
    dict(lengths=((30, 70), (0, 9), (66, 5)), num_heads_q=2, num_heads_kv=2, gather="k"),
)
# For every forward kernel, as far as it supports them.
_OF_KERNEL: tuple[Mapping[str, Any], ...] = (
    dict(seqlen_q=130, seqlen_kv=90, num_heads_q=2, num_splits=1),
    dict(seqlen_q=140, seqlen_kv=200, num_heads_q=2, causal=True, sinks=True, num_splits=3),
    dict(seqlen_q=70, seqlen_kv=290, batch=2, window_size=(40, 20), num_splits=1),
    dict(lengths=((30, 70), (0, 9), (66, 0)), num_heads_q=2, causal=True, num_splits=2),
    dict(seqlen_q=40, seqlen_kv=70, special=True, num_splits=2),
    dict(seqlen_q=90, seqlen_kv=130, num_heads_q=4, window_size=(33, 8), sinks=True, num_splits=4),
    dict(seqlen_q=150, seqlen_kv=60, causal=True, top_left=True, num_splits=1),
    dict(
        lengths=((1, 100), (0, 0), (120, 40)),
        **dict(num_heads_q=2, sinks=True, num_splits=1, window_size=(50, 0)),
    ),
)
# Values that are no float16s when they are bfloat16s: such a tile is done twice.
_LARGE: Mapping[str, Any] = dict(
    **dict(seqlen_q=100, seqlen_kv=90, num_heads_q=2, scale_v=1e4),
    **dict(causal=True, sinks=True, num_splits=2),
)
# For kernels whose tiles have several heads.
_HEADS: Mapping[str, Any] = dict(
    **dict(seqlen_q=50, seqlen_kv=200, num_heads_q=8, num_heads_kv=2),
    **dict(window_size=(127, 0), sinks=True),
)


def cases(row: KernelSpec | None) -> Iterator[AttentionCase]:
    """General cases, or those of a forward kernel at its own head sizes and at others."""
    if row is None:
        for i, options in enumerate(_GENERAL):
            yield case(return_lse=i % 3 > 0, **options)
        for options in _GATHERED:
            yield case(return_lse=True, **options)
        return
    (mode,) = row.accepts["round_mode"]
    own = row.params["head_dim"], row.params["head_dim_v"]
    others = own[0] - 24, own[0] - 8
    member = {"dtype": row.dtype, "round_mode": mode, "return_lse": True, "kernel": row.name}
    if row.accepts["softcaps"][1]:
        member["softcap"] = 2.0
    of_heads = (_HEADS,) if row.accepts["max_tile_heads"] > 1 else ()
    for dims, options in (
        *((own, one) for one in _OF_KERNEL),
        *((others, one) for one in _OF_KERNEL[-2:]),
        *((own, one) for one in (_LARGE, *of_heads)),
    ):
        made = case(head_dim=dims[0], head_dim_v=dims[1], **(member | dict(options)))
        if not mismatches(row, made.problem):
            yield made


def larger(on_gpu: bool) -> Iterator[AttentionCase]:
    """Cases for a kernel of each element type and head size, or of one on the virtual device.

    They use kernels that every architecture has, because no device is bound yet.
    """
    plain = [
        row
        for row in manifest.kernels()
        if row.op == ATTENTION
        and not row.accepts["softcaps"][1]
        and row.accepts["max_tile_heads"] == 1
    ]
    of_archs = {arch: {row.name for row in plain if row.arch == arch} for arch in ARCHITECTURES}
    everywhere = set.intersection(*filter(None, of_archs.values()))
    chosen: dict[tuple[str, int], KernelSpec] = {}
    for row in plain:
        if row.name in everywhere:
            chosen.setdefault((row.dtype, row.params["head_dim"]), row)
    for row in list(chosen.values())[: None if on_gpu else 1]:
        yield case(
            *((1000, 1100, 4, 16, 4) if on_gpu else (400, 300, 1, 2, 1)),
            row.params["head_dim"],
            head_dim_v=row.params["head_dim_v"],
            dtype=row.dtype,
            round_mode=row.accepts["round_mode"][0],
            causal=True,
            sinks=True,
            return_lse=True,
            kernel=row.name,
        )


OPERATION = Operation(
    name="attention",
    title="an attention forward call",
    kernel_ops=(ATTENTION, MERGE, GATHER, SCHEDULE),
    plan_type=AttentionPlan,
    options=OPTIONS,
    problem=problem_of,
    choices=planning.choices,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
