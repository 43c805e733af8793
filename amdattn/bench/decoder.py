"""Passes of decoders of known sizes: which launches they are, what each takes, and the floor.

A pass is as `examples/llama` has it: products with their bias, activation and sum in one launch,
and attention that appends to pages of a cache. One layer is run, behind the embedding and before
the head, on operands of its own, whose weights no cache holds; a launch finds in caches what those
before it left there. Queries, keys and values are N(0, 1).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from amdattn import virtual
from amdattn.arrays.buffers import DeviceArray, empty
from amdattn.arrays.interchange import asarray
from amdattn.bench import run
from amdattn.bench.clocks import clocks
from amdattn.bench.record import MEASURED, MODELLED
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.energy import Activity
from amdattn.op.executor import RunnablePlan
from amdattn.ops.decode.decode import plan_decode
from amdattn.ops.embedding.embedding import plan_embedding
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.plans import plan_gemm
from amdattn.ops.norm.rms_norm import plan_rms_norm
from amdattn.ops.prefill.prefill import plan_prefill
from amdattn.ops.rotary.rotary import plan_rotary
from amdattn.ops.sample.sample import plan_sample
from amdattn.testing import do_bench
from amdattn.tuning import runner

DTYPE = "bfloat16"
PAGE = 64  # keys
FEW = 16  # queries of a sequence for which one kernel appends and attends
_EPS = 1e-5
_OF_SQUARES = "4x4x4_16b"  # matrix instruction of norms, too few for an energy to matter
LEAST_LAUNCHES = 6  # of a layer, which the floor has
# A product of more operations is extrapolated from shorter ones, which take minutes.
_MOST_FLOP, _LENGTHS = 3e11, (1024, 2048)


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder."""

    layers: int
    hidden: int
    heads: int
    heads_kv: int
    inner: int
    vocabulary: int
    head_dim: int = 128
    qk_norm: bool = False

    @property
    def qkv(self) -> int:
        """Columns of the first product."""
        return (self.heads + 2 * self.heads_kv) * self.head_dim

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of a layer's weights, gate and up in one."""
        return {
            "qkv": (self.qkv, self.hidden),
            "o": (self.hidden, self.heads * self.head_dim),
            "gate_up": (2 * self.inner, self.hidden),
            "down": (self.hidden, self.inner),
        }


MODELS = {
    "llama3-8b": Model(32, 4096, 32, 8, 14336, 128256),
    "llama3-70b": Model(80, 8192, 64, 8, 28672, 128256),
    "qwen3-32b": Model(64, 5120, 64, 8, 25600, 151936, qk_norm=True),
}


@dataclass(frozen=True)
class Part:
    """Launches of a pass that do one thing.

    Attributes
    ----------
    times : int
        How often a pass has them.
    flops : int
        Of one time, of matrix products and attention.
    """

    name: str
    times: int
    plan: RunnablePlan[Any]
    run: Callable[[], Any]
    flops: int = 0

    @property
    def launches(self) -> int:
        """Of one time."""
        return len(self.plan.launches)


@dataclass(frozen=True)
class PartTime:
    """What a part takes.

    Attributes
    ----------
    us : float
        Of one time, without launches: modelled at `Pass.clock_ghz`, or measured.
    cycles : float
        Modelled; 0 if measured.
    """

    name: str
    times: int
    launches: int
    kernels: tuple[str, ...]
    us: float
    cycles: float
    flops: int
    activity: Activity | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Pass:
    """A step, or a prompt, of a model.

    Attributes
    ----------
    floor_us : float
        What weights, keys and values take at the rate of HBM, and six launches of a layer.
    clock_ghz : float
        Of modelled times.
    """

    model: str
    batch: int
    tokens: int
    context: int
    parts: tuple[PartTime, ...]
    launch_us: float
    floor_us: float
    clock_ghz: float
    origin: str
    matrix_flops_per_clk: int

    @property
    def launches(self) -> int:
        """Of the pass."""
        return sum(part.times * part.launches for part in self.parts)

    @property
    def launches_of_layer(self) -> int:
        """Of the parts that every layer has."""
        layers = MODELS[self.model].layers
        return sum(part.launches * part.times for part in self.parts if part.times > 1) // layers

    @property
    def us(self) -> float:
        """Of the pass, launches counted."""
        return sum(part.times * part.us for part in self.parts) + self.launches * self.launch_us

    @property
    def of_floor(self) -> float:
        """How many times the floor it takes."""
        return self.us / self.floor_us

    @property
    def of_the_limit(self) -> float:
        """Of the matrix units' rate, in cycles of the kernels; 0 if measured."""
        cycles = sum(part.times * part.cycles for part in self.parts)
        flops = sum(part.times * part.flops for part in self.parts)
        return flops / cycles / self.matrix_flops_per_clk if cycles else 0.0

    @property
    def energy(self) -> Mapping[str, Any]:
        """The estimate of joules, and of time at the clock that the power allows; {}: none."""
        known = [p.activity.scaled(p.times) for p in self.parts if p.activity is not None]
        if not known:
            return {}
        activity = reduce(add, known)
        flops = {x: n for x, n in activity.matrix_flops.items() if x != _OF_SQUARES}
        return run.energy(dataclasses.replace(activity, matrix_flops=flops))


def floor_us(model: Model, batch: int, context: int) -> float:
    """Weights, one row of the embedding for each sequence, and caches, from HBM; and launches.

    Launches are six of a layer, the embedding, the last norm, the head and the choice of a token.
    """
    arch, size = clocks(runtime.device_props()), as_dtype(DTYPE).itemsize
    weights = sum(n * k for n, k in model.products.values())
    keys = 2 * batch * context * model.heads_kv * model.head_dim
    elements = model.layers * (weights + keys) + (model.vocabulary + batch) * model.hidden
    launches = LEAST_LAUNCHES * model.layers + 4
    return elements * size / arch.hbm_bytes_per_ns / 1e3 + launches * arch.launch_us


def timed(
    name: str,
    batch: int,
    tokens: int,
    context: int,
    *,
    clock_mhz: int = 0,
    advance: Callable[[str], object] = lambda part: None,
) -> Pass:
    """What a pass takes: modelled on the virtual device, measured on a GPU.

    Parameters
    ----------
    name : str
        Of `MODELS`.
    batch, tokens : int
        Sequences, and new tokens of each.
    context : int
        Keys of each sequence behind the pass.
    clock_mhz : int
        Of modelled times; 0: the peak clock of a step, the sustained one of a prompt.
    advance : callable
        Told of each part before it is timed.

    Raises
    ------
    ValueError
        There is no such model, or more new tokens than keys.
    """
    if name not in MODELS:
        raise ValueError(f"shape={name!r} must be one of {', '.join(MODELS)}")
    for what, count in (("batch", batch), ("tokens", tokens)):
        if count < 1:
            raise ValueError(f"{what}={count} must be at least 1")
    if context < tokens:
        raise ValueError(f"context={context} must be at least the {tokens} new tokens")
    model, props = MODELS[name], runtime.device_props()
    arch = clocks(props)
    ghz = clock_mhz / 1000 or (arch.peak_ghz if tokens == 1 else arch.sustained_ghz)
    is_modelled = run.is_virtual()
    time = partial(_modelled, clock_mhz=round(1000 * ghz)) if is_modelled else _measured
    found = tuple(time(_parts(model, batch, tokens, context), advance))
    return Pass(
        *(name, batch, tokens, context, found),
        launch_us=arch.launch_us,
        floor_us=floor_us(model, batch, context),
        clock_ghz=ghz,
        origin=MODELLED if is_modelled else MEASURED,
        matrix_flops_per_clk=arch.num_cus * arch.matrix_flops_per_clk,
    )


# -- the launches ----------------------------------------------------------------------------------


def _parts(model: Model, batch: int, tokens: int, context: int) -> Iterator[Part]:
    """In the order of a pass; arrays of one are given back before the next one is made."""
    props, rows, once = runtime.device_props(), batch * tokens, model.layers
    x = empty((rows, model.hidden), DTYPE)  # what goes through the layers
    normed = empty((rows, model.hidden), DTYPE)
    attended = empty((rows, model.heads * model.head_dim), DTYPE)
    inner = empty((rows, model.inner), DTYPE)

    def part(
        name: str, times: int, plan: RunnablePlan[Any], flops: int = 0, **given: DeviceArray
    ) -> Part:
        return Part(name, times, plan, runner(plan, given=given), flops)

    def norm(name: str, times: int, count: int, source: DeviceArray) -> Part:
        plan = plan_rms_norm(count, model.hidden, device=props, dtype=DTYPE)
        return part(name, times, plan, x=source, out=normed[:count])

    def product(name: str, a: DeviceArray, out: DeviceArray, **options: Any) -> Part:
        n, k = model.products[name]
        columns = n // 2 if options.get("activation") else n
        plan = plan_gemm(rows, columns, k, device=props, dtype=DTYPE, **options)
        given = {"a": a, "b": empty((n, k), DTYPE), "out": out}
        if options.get("adds"):
            given["residual"] = out
        return part(name, once, plan, 2 * rows * n * k, **given)

    plan = plan_embedding(rows, model.hidden, model.vocabulary, dtype=DTYPE, device=props)
    table = empty((model.vocabulary, model.hidden), DTYPE)
    yield part("embedding", 1, plan, table=table, out=x)
    # Of few rows products normalise them; of many that is slower than a launch before.
    norms_rows = tokens <= FEW
    before, options = (x, {"rms_eps": _EPS}) if norms_rows else (normed, {})
    if not norms_rows:
        yield norm("norm", once, rows, x)
    yield product("qkv", before, empty((rows, model.qkv), DTYPE), **options)
    if model.qk_norm:
        yield _turn(model, batch, tokens, context)
    yield _attention(model, batch, tokens, context, attended)
    yield product("o", attended, x, adds="residual")
    if not norms_rows:
        yield norm("norm", once, rows, x)
    yield product("gate_up", before, inner, activation="silu_and_mul", **options)
    yield product("down", inner, x, adds="residual")
    yield norm("last norm", 1, batch, x[rows - batch :])
    head = plan_gemm(
        *(batch, model.vocabulary, model.hidden), device=props, dtype=DTYPE, out_dtype="float32"
    )
    weights, logits = (
        empty((model.vocabulary, model.hidden), DTYPE),
        empty((batch, model.vocabulary), "float32"),
    )
    flops = 2 * batch * model.vocabulary * model.hidden
    yield part("head", 1, head, flops, a=normed[:batch], b=weights, out=logits)
    token = plan_sample(batch, model.vocabulary, device=props, temperature=0.0)
    yield part("token", 1, token)


def _turn(model: Model, batch: int, tokens: int, context: int) -> Part:
    """Of models that normalise heads of q and k: with what turns them, in place."""
    plan = plan_rotary(
        *(batch, tokens, model.heads, model.head_dim),
        heads_k=model.heads_kv,
        table_rows=-(-context // PAGE) * PAGE,
        device=runtime.device_props(),
        dtype=DTYPE,
        table_dtype="float32",
        positions="offsets",
        q_norm=True,
        k_norm=True,
    )
    offsets = asarray(np.full(batch, context - tokens, np.int32))
    given = {"seqlen_offsets": offsets}
    return Part("norms, rotary", model.layers, plan, runner(plan, given=given), 0)


def _attention(model: Model, batch: int, tokens: int, context: int, attended: DeviceArray) -> Part:
    """Appends, turns what is not and attends; every sequence has `context` keys then."""
    pages = -(-context // PAGE)
    turned: dict[str, Any] = {"rotary_dim": model.head_dim, "rotary_positions": pages * PAGE}
    turned |= {"rotary_interleaved": False, "rotary_dtype": "float32"}
    plan = (plan_decode if tokens <= FEW else plan_prefill)(
        *(batch, tokens, pages * PAGE, model.heads, model.heads_kv, model.head_dim),
        device=runtime.device_props(),
        dtype=DTYPE,
        causal=True,
        seqlen_new=tokens,
        page_size=PAGE,
        num_pages=batch * pages,
        cache_seqlens=True,
        **({} if model.qk_norm else turned),
    )
    lengths = asarray(np.full(batch, context - tokens, np.int32))
    out = attended.reshape((batch, tokens, model.heads, model.head_dim))
    before = context - tokens
    pairs = batch * (tokens * before + tokens * (tokens + 1) // 2)
    flops = 4 * pairs * model.heads * model.head_dim
    given = {"cache_seqlens": lengths, "out": out}
    return Part("attention", model.layers, plan, runner(plan, given=given), flops)


# -- their times -----------------------------------------------------------------------------------


def _measured(parts: Iterator[Part], advance: Callable[[str], object]) -> Iterator[PartTime]:
    """Each alone, caches flushed before."""
    for part in parts:
        advance(part.name)
        us = 1000 * float(do_bench(part.run, return_mode="median"))
        yield _time(part, us=us)


def _modelled(
    parts: Iterator[Part], advance: Callable[[str], object], clock_mhz: int
) -> Iterator[PartTime]:
    """Each with the caches as those before it left them; long products alone, by shorter ones."""
    found: list[Part] = []
    long: dict[int, Activity] = {}
    with virtual.profile(clock_mhz=clock_mhz) as profile:
        for part in parts:
            advance(part.name)
            if isinstance(part.plan, GemmPlan) and part.flops > _MOST_FLOP:
                long[len(found)] = Activity(0.0)
            else:
                part.run()
                runtime.synchronize()
            found.append(part)
    for i in long:
        advance(f"{found[i].name}, shorter ones")
        long[i] = _extrapolated(found[i], clock_mhz)
    launches = iter(profile.launches)
    for i, part in enumerate(found):
        activity = long.get(i)
        if activity is None:
            activity = reduce(add, (Activity.of(next(launches)) for _ in range(part.launches)))
        yield _time(part, activity.cycles / clock_mhz, activity)


def _extrapolated(part: Part, clock_mhz: int) -> Activity:
    """The line through the same product of two lengths of k, by the kernel of the plan."""
    (launch,) = part.plan.launches
    at = []
    for length in _LENGTHS:
        problem = dataclasses.replace(part.plan.problem, k=length)
        plan = GemmPlan.of(planning.plan_gemm(problem, part.plan.props, [launch.kernel]))
        (profile,) = virtual.profiled(runner(plan), clock_mhz=clock_mhz)
        at.append(Activity.of(profile))
    share = (part.plan.problem.k - _LENGTHS[0]) / (_LENGTHS[1] - _LENGTHS[0])
    return at[0].scaled(1 - share) + at[1].scaled(share)


def _time(part: Part, us: float, activity: Activity | None = None) -> PartTime:
    kernels = tuple(launch.kernel.name for launch in part.plan.launches)
    cycles = 0.0 if activity is None else activity.cycles
    return PartTime(part.name, part.times, part.launches, kernels, us, cycles, part.flops, activity)
