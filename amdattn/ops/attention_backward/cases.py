"""Gradients of attention as an operation: options, cases, and expected results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.op.operation import Case, Expected, Operation
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.attention_backward import planning, reference
from amdattn.ops.attention_backward.command_options import OPTIONS, problem_of
from amdattn.ops.attention_backward.execution import RESULTS, BackwardPlan
from amdattn.ops.attention_backward.kernels import BACKWARD, ROUND, ROWS, SINKS, SUM
from amdattn.ops.attention_backward.plans import planned
from amdattn.ops.attention_backward.problem import BackwardProblem
from amdattn.ops.attention_backward.reference import Inputs, Options

_TENSORS = ("dout", "q", "k", "v", "o")
_OF_ROWS = ("dout", "q", "o")


@dataclass(frozen=True)
class BackwardCase(Case[BackwardProblem]):
    """Gradients on normally distributed inputs, with o and lse that belong to them.

    Attributes
    ----------
    lengths : tuple of (int, int)
        Rows of q and of k of every sequence, for a problem of several lengths.
    """

    lengths: tuple[tuple[int, int], ...] = ()

    @property
    def title(self) -> str:
        """One line for people."""
        return super().title + (f" lengths {self.lengths}" if self.lengths else "")

    @property
    def options(self) -> Options:
        """Options of the forward."""
        p = self.problem.forward
        return Options(p.softmax_scale, p.causal, p.window_size, p.softcap, p.top_left)

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand, the same for the same seed."""
        problem, p, rng = self.problem, self.problem.forward, np.random.default_rng(seed)
        element = as_dtype(p.dtype).numpy()
        layout = "thd" if p.varlen else "bshd"
        names = ("dout", "q", "k", "v")
        made = {
            name: rng.standard_normal(problem.shape(name, layout), np.float32).astype(element)
            for name in names
        }
        small = {}
        if p.sinks:
            small["sinks"] = rng.standard_normal(p.num_heads_q, np.float32)
        if problem.dlse:
            small["dlse"] = rng.standard_normal(p.shape("lse", layout), np.float32)
        made["o"] = np.zeros(problem.shape("o", layout), element)
        lse = made["lse"] = np.zeros(p.shape("lse", layout), np.float32)
        for rows, keys in self._places():
            dout, q, k, v = (self._part(made, name, rows, keys) for name in names)
            one = reference.of_forward(dout, q, k, v, self.options, small.get("sinks"))
            self._part(made, "o", rows, keys)[...] = one.o
            (lse[None] if p.varlen else lse)[..., rows] = one.lse
        if self.variant == "bhsd":
            for name in (*names, "o"):
                made[name] = np.ascontiguousarray(made[name].swapaxes(1, 2))
        if self.lengths:
            sums = np.cumsum([(0, 0), *self.lengths], axis=0, dtype=np.int32)
            small["cu_seqlens_q"] = np.ascontiguousarray(sums[:, 0])
            small["cu_seqlens_kv"] = np.ascontiguousarray(sums[:, 1])
        return {**made, **small}

    def parts(self, inputs: Mapping[str, NDArray[Any]]) -> Iterator[tuple[slice, slice, Inputs]]:
        """Rows, keys and inputs of each sequence, or of all at once if they have one length."""
        p = self.problem.forward
        given = dict(inputs)
        if self.variant == "bhsd":
            given |= {name: given[name].swapaxes(1, 2) for name in _TENSORS}
        for rows, keys in self._places():
            dout, q, k, v, o = (self._part(given, name, rows, keys) for name in _TENSORS)
            lse, dlse = (
                (given[name][None] if p.varlen else given[name])[..., rows]
                if name in given
                else None
                for name in ("lse", "dlse")
            )
            assert lse is not None
            yield rows, keys, Inputs(dout, q, k, v, o, lse, given.get("sinks"), dlse)

    def _places(self) -> Iterator[tuple[slice, slice]]:
        if not self.lengths:
            yield slice(None), slice(None)
            return
        row = key = 0
        for rows, keys in self.lengths:
            yield slice(row, row + rows), slice(key, key + keys)
            row, key = row + rows, key + keys

    def _part(
        self, arrays: Mapping[str, NDArray[Any]], name: str, rows: slice, keys: slice
    ) -> NDArray[Any]:
        x: NDArray[Any] = arrays[name][None] if self.problem.forward.varlen else arrays[name]
        part: NDArray[Any] = x[:, rows if name in _OF_ROWS else keys]
        return part


def expected(case: BackwardCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Gradients in float64 from the given o and lse, with the allowed error of each element."""
    p = case.problem.forward
    values: dict[str, list[NDArray[Any]]] = {name: [] for name in RESULTS}
    allowed: dict[str, list[NDArray[Any]]] = {name: [] for name in RESULTS}
    for _, _, one in case.parts(inputs):
        results = reference.gradients(one, case.options)
        tolerances = reference.tolerances(one, case.options, results)
        for found, into in ((results, values), (tolerances, allowed)):
            for name in RESULTS if p.sinks else RESULTS[:3]:
                into[name].append(getattr(found, name))

    def whole(of: list[NDArray[Any]], name: str) -> NDArray[Any]:
        if name == "dsinks":
            total: NDArray[Any] = np.sum(of, axis=0)
            return total
        joined: NDArray[Any] = np.concatenate(of, axis=1)
        if case.variant == "bhsd":
            joined = joined.swapaxes(1, 2)
        found: NDArray[Any] = joined[0] if p.varlen else joined
        return found

    return {
        name: Expected(whole(values[name], name), whole(allowed[name], name))
        for name in RESULTS
        if values[name]
    }


# -- cases -----------------------------------------------------------------------------------------


def case(
    seqlen_q: int = 0,
    seqlen_kv: int = 0,
    batch: int = 1,
    num_heads_q: int = 1,
    num_heads_kv: int = 1,
    head_dim: int = 64,
    *,
    layout: str = "bshd",
    lengths: tuple[tuple[int, int], ...] = (),
    kernel: str = "",
    out_dtype: str = "",
    deterministic: bool = False,
    dlse: bool = False,
    **options: Any,
) -> BackwardCase:
    """A case of these sizes and `options` of `AttentionProblem`, or of sequences of `lengths`."""
    if lengths:
        rows, keys = zip(*lengths, strict=True)
        batch, seqlen_q, seqlen_kv = len(rows), max(rows), max(keys)
        options |= {"total_q": sum(rows), "total_kv": sum(keys)}
    forward = AttentionProblem(
        *(batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim),
        **options,
    )
    problem = BackwardProblem(forward, out_dtype, deterministic, dlse)
    variant = "" if lengths or layout == "bshd" else layout
    return BackwardCase(problem, variant, kernel, lengths)


# Sizes around the tiles of rows and blocks of keys, with GQA, MQA, several batch entries and
# layouts.
_GENERAL: tuple[Mapping[str, Any], ...] = (
    *({"seqlen_q": n, "seqlen_kv": n} for n in (1, 15, 16, 17, 33, 63, 64, 65)),
    {"seqlen_q": 1, "seqlen_kv": 257},
    {"seqlen_q": 97, "seqlen_kv": 1, "causal": True},
    {"seqlen_q": 33, "seqlen_kv": 300, "num_heads_q": 4, "num_heads_kv": 2, "causal": True},
    {"seqlen_q": 65, "seqlen_kv": 50, "num_heads_q": 3, "out_dtype": "float32"},
    {"seqlen_q": 40, "seqlen_kv": 70, "batch": 2, "num_heads_q": 2, "layout": "bhsd"},
    {"seqlen_q": 50, "seqlen_kv": 70, "softmax_scale": -0.25, "window_size": (20, 10)},
    {"num_heads_q": 2, "causal": True, "lengths": ((40, 90), (3, 0), (0, 9), (17, 5))},
    {
        **{"seqlen_q": 40, "seqlen_kv": 300, "num_heads_q": 4, "num_heads_kv": 2, "num_splits": 6},
        **{"deterministic": True, "out_dtype": "float32", "window_size": (60, 9)},
    },
    {
        **{"num_heads_q": 2, "causal": True, "num_splits": 4},
        **{"lengths": ((40, 90), (3, 0), (0, 9), (17, 5))},
    },
)
# For every kernel, with its own head sizes and with others.
_OF_KERNEL: tuple[Mapping[str, Any], ...] = (
    {"seqlen_q": 40, "seqlen_kv": 70, "num_heads_q": 2, "causal": True},
    {
        **{"seqlen_q": 35, "seqlen_kv": 45, "softcap": 2.0, "sinks": True, "dlse": True},
        **{"window_size": (20, 3), "out_dtype": "float32"},
    },
    {
        **{"num_heads_q": 2, "num_heads_kv": 2, "top_left": True, "causal": True},
        **{"lengths": ((30, 20), (0, 3), (18, 33)), "deterministic": True},
    },
)


def cases(row: KernelSpec | None) -> Iterator[BackwardCase]:
    """General cases, or those of a kernel."""
    if row is None:
        for i, options in enumerate(_GENERAL):
            yield case(dtype=("bfloat16", "float16")[i % 2], **options)
        return
    own = row.params["head_dim"], row.params["head_dim_v"]
    others = own[0] - 24, own[1] - 8
    for dims, one in (*((own, one) for one in _OF_KERNEL), (others, _OF_KERNEL[1])):
        options = dict(one)
        if not row.accepts["softcaps"][1]:
            options.pop("softcap", None)
        if options.get("deterministic", False) not in row.accepts["deterministic"]:
            options["deterministic"] = row.accepts["deterministic"][0]
        yield case(
            head_dim=dims[0], head_dim_v=dims[1], dtype=row.dtype, kernel=row.name, **options
        )


def larger(on_gpu: bool) -> Iterator[BackwardCase]:
    """Cases with work for every CU of a GPU, or for a few CUs of the virtual device."""
    for dtype in ("bfloat16", "float16") if on_gpu else ("bfloat16",):
        sizes = (1000, 1100, 4, 16, 4) if on_gpu else (150, 200, 1, 2, 1)
        yield case(*sizes, 128 if on_gpu else 64, dtype=dtype, causal=True)


OPERATION = Operation(
    name="attention_backward",
    title="the gradients of attention",
    kernel_ops=(BACKWARD, ROWS, SUM, ROUND, SINKS),
    plan_type=BackwardPlan,
    options=OPTIONS,
    problem=problem_of,
    choices=planning.choices,
    best=planning.best,
    build=planning.build,
    reference=expected,
    planned=planned,
    cases=cases,
    larger=larger,
)
