"""Every shipped kernel against float64, its results inside of guard zones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.arrays.buffers import DeviceArray
from amdattn.arrays.interchange import asarray
from amdattn.device import manifest, runtime
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.ops.attention import reference, select
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.planning import GEMM, plan_gemm
from amdattn.ops.gemm.problem import GemmProblem
from amdattn.report.steps import Row, verdict

Array = NDArray[Any]
GUARD = 8  # elements on every side: 16 bytes, so that rows keep their alignment
_WORKSPACE_GUARD = 4096
_POISON = {1: 0xA5, 2: 0xFFA5, 4: 0xFFA5A5A5}  # by element size; of floats, NaNs
_QUICK_EVERY = 12  # kernels of each operation, of which a quick report runs one


@dataclass(frozen=True)
class Case:
    """One problem of a kernel of the manifest."""

    kernel: KernelSpec
    sizes: tuple[int, ...]  # attention: batch, rows, keys, heads of q, of kv; gemm: m, n, k
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        options = "".join(f" {name}={value}" for name, value in self.options.items())
        return "x".join(map(str, self.sizes)) + options


@dataclass(frozen=True)
class Held:
    """What a case gave: the worst error as a share of what is allowed, and what is wrong."""

    share: float
    wrong: str
    kernels: tuple[str, ...]


class Guarded:
    """A device array inside of a larger one of poison."""

    def __init__(self, shape: tuple[int, ...], dtype: str, guard: int = GUARD) -> None:
        element = as_dtype(dtype).numpy()
        self._shape, self._poison = shape, _POISON[element.itemsize]
        self._where = (*(slice(1, -1) for _ in shape[:-1]), slice(guard, -guard))
        wide = (*(n + 2 for n in shape[:-1]), shape[-1] + 2 * guard)
        self._bits = np.dtype(f"u{element.itemsize}")
        self._dtype = element
        self._array = asarray(np.full(wide, self._poison, self._bits).view(element))
        self.inner: DeviceArray = self._array[self._where]

    def taken(self, whole: bool = True) -> tuple[Array, str]:
        """What is inside now, and what is wrong: written around it, or, if `whole`, left out."""
        after = self._array.numpy().view(self._bits)
        inside = after[self._where].copy()
        after[self._where] = self._poison
        wrong = ""
        if outside := np.count_nonzero(after != self._poison):
            wrong = f"{outside} elements around the result were written"
        elif whole and (left := np.count_nonzero(inside == self._poison)):
            wrong = f"{left} elements of the result were not written"
        return inside.view(self._dtype).reshape(self._shape), wrong


# -- which cases -----------------------------------------------------------------------------------

_PLAIN = (1, 130, 90, 2, 1)
_SPLIT: tuple[tuple[int, ...], dict[str, Any]] = (
    (1, 140, 200, 2, 2),
    {"causal": True, "num_splits": 3},
)
_NARROW = ((1, 50, 200, 8, 2), {"window_size": (127, 0), "sinks": True})
_GATHERED = ((2, 33, 130, 3, 3), {"gather": "kv"})
# That every CU of a GPU has work; the virtual device is asked for less.
_LARGER, _LARGER_VIRTUAL = (4, 1000, 1100, 16, 4), (1, 400, 300, 2, 1)
_LARGER_OPTIONS = {"causal": True, "sinks": True}
_GEMMS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((35, 50, 840), {"split_k": 3, "bias": True}),
    ((18, 21, 328), {"alpha": -0.5}),
)


def attention_cases(row: KernelSpec) -> list[Case]:
    """Of a forward kernel: whole tiles, and tiles in parts that another kernel merges."""
    softcap = {"softcap": 2.0} if row.accepts["softcaps"][1] else {}
    if row.accepts["max_tile_heads"] > 1:
        return [Case(row, _NARROW[0], _NARROW[1] | softcap)]
    sizes, options = _SPLIT
    return [Case(row, _PLAIN, {"num_splits": 1} | softcap), Case(row, sizes, options | softcap)]


def groups(quick: bool) -> list[tuple[str, str, list[Case]]]:
    """Name, title and cases of every step, smaller problems first. Binds no device."""
    rows = manifest.kernels()
    gemms = [row for row in rows if row.op == GEMM]
    forwards = [row for row in rows if row.op == select.ATTENTION]
    if quick:
        gemms, forwards = gemms[::_QUICK_EVERY], forwards[::_QUICK_EVERY]
    of_gemm = [Case(row, *one) for row in gemms for one in _GEMMS[: 1 if quick else None]]
    small = [case for row in forwards for case in attention_cases(row)]
    gathered = Case(forwards[0], *_GATHERED)
    return [
        ("gemm", f"{len(gemms)} kernels of gemm_nt against float64", of_gemm),
        ("attention", f"{len(forwards)} kernels of attention against float64", [gathered, *small]),
    ]


def larger_cases() -> list[Case]:
    """Of a kernel for each element type and head size, on the bound device."""
    virtual = runtime.get().choice.kind == "virtual"
    chosen: dict[tuple[str, int], KernelSpec] = {}
    for row in manifest.kernels():
        plain = row.op == select.ATTENTION and not row.accepts["softcaps"][1]
        if plain and row.accepts["max_tile_heads"] == 1:
            chosen.setdefault((row.dtype, row.params["head_dim"]), row)
    rows = list(chosen.values())[: 1 if virtual else None]
    return [Case(row, _LARGER_VIRTUAL if virtual else _LARGER, _LARGER_OPTIONS) for row in rows]


# -- running them ----------------------------------------------------------------------------------


def run(cases: Sequence[Case], hold: Callable[[Case], Held] | None = None) -> Iterator[Row]:
    """A row for every kernel, and one for the kernels that ran besides."""
    hold = hold or held
    arch = runtime.device_props().arch
    by_kernel: dict[KernelSpec, list[Case]] = {}
    for case in cases:
        by_kernel.setdefault(case.kernel, []).append(case)
    others: set[str] = set()
    for kernel, of_kernel in by_kernel.items():
        if kernel.arch != arch:
            yield verdict(kernel.name, f"is for {kernel.arch}, the device is {arch}", "")
            continue
        worst, wrong = 0.0, ""
        for case in of_kernel:
            found = hold(case)
            worst = max(worst, found.share)
            others |= set(found.kernels)
            if found.wrong:
                wrong = f"{case}: {found.wrong}"
                break
        count = len(of_kernel)
        yield verdict(
            kernel.name,
            wrong,
            f"{worst:.0%} of the allowed error, {count} case{'s' * (count != 1)}, "
            "guard zones untouched",
            share=worst,
            cases=[str(case) for case in of_kernel],
        )
    others -= {kernel.name for kernel in by_kernel}
    if others:
        yield verdict(
            "kernels that ran with them", "", ", ".join(sorted(others)), kernels=sorted(others)
        )


def held(case: Case) -> Held:
    """Run a case on the bound device and compare."""
    return _held_gemm(case) if case.kernel.op == GEMM else _held_attention(case)


def _normal(seed: Sequence[int], shape: tuple[int, ...], dtype: str) -> Array:
    values = np.random.default_rng(list(seed)).standard_normal(shape, np.float32)
    return values.astype(as_dtype(dtype).numpy())


def _share(got: Array, expected: Array, allowed: Array) -> tuple[float, str]:
    """The worst error by what is allowed, and what is wrong with it."""
    x = got.astype(np.float64)
    with np.errstate(invalid="ignore"):
        share = np.where(x == expected, 0.0, np.abs(x - expected) / allowed)
    share = np.where(np.isnan(share), np.inf, share)
    worst = np.unravel_index(int(np.argmax(share)), share.shape)
    wrong = ""
    if share[worst] > 1:
        at = list(map(int, worst))
        wrong = f"element {at} is {x[worst]:.6g}, not {expected[worst]:.6g} +- {allowed[worst]:.2g}"
    return float(share[worst]), wrong


def _held_attention(case: Case) -> Held:
    batch, rows, keys, heads_q, heads_kv = case.sizes
    kernel, options = case.kernel, case.options
    (mode,) = kernel.accepts["round_mode"]
    problem = AttentionProblem(
        *(
            batch,
            rows,
            keys,
            heads_q,
            heads_kv,
            kernel.params["head_dim"],
            kernel.params["head_dim_v"],
            kernel.dtype,
        ),
        round_mode=mode,
        return_lse=True,
        **options,
    )
    plan = planned_with(problem, runtime.device_props(), kernel.name)
    q, k, v = (
        _normal((i, *case.sizes), shape, kernel.dtype)
        for i, shape in enumerate(
            (
                (batch, rows, heads_q, kernel.params["head_dim"]),
                (batch, keys, heads_kv, kernel.params["head_dim"]),
                (batch, keys, heads_kv, kernel.params["head_dim_v"]),
            )
        )
    )
    sinks = _normal((9, *case.sizes), (heads_q,), "float32") if problem.sinks else None
    out = Guarded(problem.shape("o", "bshd"), kernel.dtype)
    lse = Guarded(problem.shape("lse", "bshd"), "float32")
    more: dict[str, Any] = {} if sinks is None else {"sinks": asarray(sinks)}
    scratch = None
    if plan.workspace.total_bytes:
        scratch = Guarded((plan.workspace.total_bytes,), "uint8", _WORKSPACE_GUARD)
        more["workspace"] = scratch.inner
    plan.run(asarray(q), asarray(k), asarray(v), out.inner, lse=lse.inner, **more)
    runtime.synchronize()
    got, wrong = out.taken()
    got_lse, wrong_lse = lse.taken()
    if scratch is not None:
        wrong = wrong or scratch.taken(whole=False)[1]
    wrong = wrong or (wrong_lse and f"lse: {wrong_lse}")
    kernels = tuple(launch.kernel.name for launch in plan.launches)
    if wrong:
        return Held(math.inf, wrong, kernels)
    masks = {n: x for n, x in options.items() if n in ("causal", "window_size", "softcap")}
    share, wrong = _attention_share(problem, (q, k, v), sinks, masks, got, got_lse)
    return Held(share, wrong, kernels)


def _attention_share(
    problem: AttentionProblem,
    arrays: tuple[Array, Array, Array],
    sinks: Array | None,
    masks: dict[str, Any],
    got: Array,
    got_lse: Array,
) -> tuple[float, str]:
    q, k, v = (x.astype(np.float64) for x in arrays)
    masks = masks | {"sinks": sinks}
    expected, expected_lse = reference.attention(q, k, v, **masks)
    # Of sum p |v|: p, the sum of the rounded p, and o are rounded; scores are float32.
    terms, _ = reference.attention(q, k, np.abs(v), **masks)
    bits = 8 if problem.dtype == "bfloat16" else 11
    rounding = 2.0 ** (1 - bits if problem.round_mode == "rtz" else -bits)
    longest = [float(np.linalg.norm(x, axis=-1).max()) for x in (q, k)]
    reach = longest[0] * longest[1] / math.sqrt(problem.head_dim) + 4 * problem.softcap
    absolute = 2.0**-24 * (k.shape[1] + 1) if problem.dtype == "float16" else 2.0**-120
    allowed = (3 * rounding + 2.0**-20 * (1 + reach)) * terms + absolute
    share, wrong = _share(got, expected, allowed)
    allowed_lse = 2e-6 * (1 + np.abs(expected_lse)) + 2.0**-22 * reach
    share_lse, wrong_lse = _share(got_lse, expected_lse, allowed_lse)
    return max(share, share_lse), wrong or (wrong_lse and f"lse: {wrong_lse}")


def _held_gemm(case: Case) -> Held:
    m, n, k = case.sizes
    row = case.kernel
    problem = GemmProblem(m, n, k, row.dtype, **case.options)
    plan = GemmPlan.of(plan_gemm(problem, runtime.device_props(), [row]))
    arrays = {
        name: _normal((i, m, n, k), shape, row.dtype)
        for i, (name, shape) in enumerate(problem.input_shapes.items())
    }
    out = Guarded((m, n), problem.out_dtype)
    workspace = plan.new_workspace() if plan.workspace.regions else None
    operands = {name: asarray(array) for name, array in arrays.items()}
    plan.run(out=out.inner, workspace=workspace, **operands)
    runtime.synchronize()
    got, wrong = out.taken()
    if not wrong and workspace is not None:
        zeros = plan.workspace["counters"].nbytes
        if workspace.numpy()[:zeros].any():
            wrong = "the counters of the workspace are not 0 again"
    if wrong:
        return Held(math.inf, wrong, (row.name,))
    a, b = (arrays[name].astype(np.float64) for name in "ab")
    exact = problem.alpha * (a @ b.T)
    terms = abs(problem.alpha) * (np.abs(a) @ np.abs(b).T)
    if "bias" in arrays:
        exact = exact + arrays["bias"].astype(np.float64)
        terms = terms + np.abs(arrays["bias"].astype(np.float64))
    bits = {"bfloat16": 8, "float16": 11, "float32": 24}[problem.out_dtype]
    # Sums of 64 products truncate, sums of those round; most errors cancel.
    allowed = np.abs(exact) * 2.0**-bits + terms * 2.0**-22 + 2.0**-24
    share, wrong = _share(got, exact, allowed)
    return Held(share, wrong, (row.name,))
