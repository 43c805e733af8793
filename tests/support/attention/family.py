"""The members of the attention forward family, and calls of one that watch all it may write."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import amdattn
from amdattn.checking import schedules
from amdattn.checking.findings import ERROR, FindingLog
from amdattn.checking.subjects import OfOperation, every_case
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.ops.attention.plans import planned_with
from amdattn.ops.attention.problem import AttentionProblem
from tests.support.attention import masked

Array = npt.NDArray[Any]
GUARD = 8  # elements: 16 bytes, so that rows keep their alignment
POISON = {2: 0xFFA5, 4: 0xFFA5A5A5, 1: 0xA5}  # by element size; of floats, NaNs


@dataclasses.dataclass(frozen=True)
class Member:
    """Element type, head_dim of q and k, of v, rounding mode."""

    dtype: str
    head_dim: int
    head_dim_v: int
    mode: str
    kernel: str = ""  # of the manifest, to be planned with; "": whichever it prefers

    def __str__(self) -> str:
        return f"{self.dtype}-{self.head_dim}x{self.head_dim_v}-{self.mode}-{self.kernel}".rstrip(
            "-"
        )

    @property
    def is_narrow(self) -> bool:
        """For rows that see few keys; parts of its tiles are parts of their heads."""
        return "_narrow_" in self.kernel

    @property
    def element(self) -> Any:
        """The numpy dtype."""
        return as_dtype(self.dtype).numpy()

    @property
    def rounding(self) -> float:
        """Largest relative error of one rounding."""
        bits = 8 if self.dtype == "bfloat16" else 11
        return 2.0 ** (1 - bits if self.mode == "rtz" else -bits)


_MODES = (("bfloat16", "rtne"), ("bfloat16", "rtna"), ("bfloat16", "rtz"), ("float16", "rtne"))
MEMBERS = [
    *(
        Member(dtype, *dims, mode)
        for dims in ((128, 128), (64, 64), (192, 128), (256, 256))
        for dtype, mode in _MODES
    ),
    *(
        Member(dtype, dim, dim, mode, f"attn_fwd_{prefix}_d{dim}_q{rows}_{mode}")
        for dim, rows in ((128, 256), (64, 256), (128, 128))
        for (dtype, mode), prefix in zip(_MODES, ("bf16", "bf16", "bf16", "fp16"), strict=True)
    ),
]
MAIN = MEMBERS[0]
# For narrow windows: at their own head size, and at one that they compute as that.
NARROW = [
    Member(dtype, *dims, mode, f"attn_fwd_{prefix}_d64_narrow_{mode}")
    for dims in ((64, 64), (40, 24))
    for (dtype, mode), prefix in zip(_MODES, ("bf16", "bf16", "bf16", "fp16"), strict=True)
]
_SOME = {
    *(member for member in MEMBERS if (member.dtype, member.mode) == _MODES[0]),
    *(MEMBERS[i] for i in (3, 11, 23)),  # float16: of two head sizes, and of 256 rows
    *(MEMBERS[i] for i in (1, 17, 14, 26)),  # rtna and rtz: of both sizes of tiles each
    *(NARROW[i] for i in (0, 3, 5, 6)),
}


def some_by_default(members: Sequence[Member]) -> list[Any]:
    """Every shape, element type and rounding; the slow tier has the other pairs of them.

    Roundings of the same shape are the same code but for a few instructions.
    """
    return [
        pytest.param(member, marks=() if member in _SOME else pytest.mark.slow)
        for member in members
    ]


# Head sizes that the members compute as greater ones: in each, more or fewer columns of v.
_PADDED_DIMS = (
    *((8, 8), (32, 32), (40, 64), (56, 24), (72, 72), (80, 80), (96, 96), (120, 8), (16, 128)),
    *((104, 200), (136, 104), (192, 192), (176, 136), (160, 128), (200, 200), (248, 64)),
    *((256, 128), (224, 256)),
)
PADDED = [
    Member("float16", *dims, "rtne")
    if i % 3 == 2
    else Member("bfloat16", *dims, ("rtne", "rtz", "rtna")[i % 4 % 3])
    for i, dims in enumerate(_PADDED_DIMS)
]


def sums(lengths: tuple[int, ...]) -> Array:
    """Rows before each sequence, and all."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def operands(
    member: Member,
    rows: int,
    keys: int,
    heads: tuple[int, int] = (1, 1),
    batch: int | None = 1,
    layout: str = "bshd",
) -> tuple[Array, Array, Array]:
    """q, k and v, normally distributed; `heads` are those of q and of k and v. No batch: varlen."""
    rng = np.random.default_rng([rows, keys, *heads])
    leading = () if batch is None else (batch,)
    made = []
    for seqlen, count, dim in (
        (rows, heads[0], member.head_dim),
        (keys, heads[1], member.head_dim),
        (keys, heads[1], member.head_dim_v),
    ):
        axes = (seqlen, count) if layout == "bshd" else (count, seqlen)
        x = rng.standard_normal((*leading, *axes, dim), np.float32)
        made.append(x.astype(member.element))
    return made[0], made[1], made[2]


@dataclasses.dataclass(frozen=True)
class Call:
    """A member with options of `AttentionProblem`; lengths of the sequences if they differ."""

    member: Member
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    layout: str = "bshd"
    sinks: Array | None = None
    lengths: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def plan(self, q: Any, k: Any, v: Any) -> amdattn.AttentionPlan:
        """For arrays of these shapes."""
        member, options = self.member, dict(self.options)
        if self.lengths:
            rows, keys = self.lengths
            heads_q, heads_kv = q.shape[1], k.shape[1]
            sizes = len(rows), max(1, *rows), max(1, *keys)
            options |= {"total_q": q.shape[0], "total_kv": k.shape[0]}
        else:
            seq, head = (1, 2) if self.layout == "bshd" else (2, 1)
            heads_q, heads_kv = q.shape[head], k.shape[head]
            sizes = q.shape[0], q.shape[seq], k.shape[seq]
        problem = AttentionProblem(
            *(*sizes, heads_q, heads_kv, member.head_dim, member.head_dim_v, member.dtype),
            round_mode=member.mode,
            return_lse=True,
            sinks=self.sinks is not None,
            **options,
        )
        return planned_with(problem, amdattn.device_props(), member.kernel)

    def run(self, q: Any, k: Any, v: Any, stream: Any = None) -> tuple[Array, Array]:
        """(out, lse) from inside larger buffers of NaN, of which the rest must stay as it was.

        q, k and v are host or device arrays. The workspace holds NaN before, too, but for counters.
        """
        plan = self.plan(q, k, v)
        shape = (*q.shape[:-1], v.shape[-1])
        lse_shape = plan.problem.shape("lse", "thd" if self.lengths else self.layout)
        out = Guarded(shape, self.member.element)
        lse = Guarded(lse_shape, np.dtype(np.float32))
        more: dict[str, Any] = {}
        if plan.workspace.total_bytes:
            workspace = Guarded((plan.workspace.total_bytes,), np.dtype(np.uint8), 4096)
            more["workspace"] = workspace.inner
            if plan.workspace.zero_bytes:
                runtime.get().clear(workspace.inner.address, plan.workspace.zero_bytes, 0)
        if self.sinks is not None:
            more["sinks"] = amdattn.asarray(self.sinks)
        if self.lengths:
            names = ("cu_seqlens_q", "cu_seqlens_k")
            for name, lengths in zip(names, self.lengths, strict=True):
                more[name] = amdattn.asarray(sums(lengths))
        arrays = [
            x if isinstance(x, amdattn.DeviceArray) else amdattn.asarray(x) for x in (q, k, v)
        ]
        amdattn.synchronize()
        plan.run(*arrays, out.inner, lse=lse.inner, layout=self.layout, stream=stream, **more)
        amdattn.synchronize()
        if "workspace" in more:
            workspace.taken()
        return out.taken(), lse.taken()

    def check(self, q: Any, k: Any, v: Any, on_device: Any = None) -> tuple[Array, Array]:
        """Run, and hold both results against float64."""
        out, lse = self.run(*(on_device or (q, k, v)))
        self.hold(out, lse, q, k, v)
        return out, lse

    def hold(self, out: Array, lse: Array, q: Array, k: Array, v: Array) -> None:
        """Every element within the bound of its own roundings; NaN and infinities in place."""
        masking = {
            name: self.options[name]
            for name in ("causal", "window_size", "top_left", "softmax_scale", "softcap")
            if name in self.options
        }
        order = (0, 1, 2, 3) if self.layout == "bshd" else (0, 2, 1, 3)
        wide = [np.asarray(x).astype(np.float64) for x in (q, k, v)]

        def reference(values: Array) -> tuple[Array, Array]:
            if self.lengths:
                rows_and_keys = (sums(lengths) for lengths in self.lengths)
                return masked.varlen(*wide[:2], values, *rows_and_keys, sinks=self.sinks, **masking)
            arrays = (x.transpose(order) for x in (*wide[:2], values))
            with np.errstate(invalid="ignore"):
                o, its_lse = masked.attention(*arrays, sinks=self.sinks, **masking)
            return o.transpose(order), its_lse

        both, expected_lse = reference(np.concatenate([wide[2], np.abs(wide[2])], axis=-1))
        # Of sum p |v|: p, the sum of the rounded p and o are rounded; scores are float32.
        expected, terms = np.split(both, 2, axis=-1)
        scale = masking.get("softmax_scale", 1 / math.sqrt(self.member.head_dim))
        reach = (
            abs(scale)
            * float(np.nanmax(np.linalg.norm(_finite(wide[0]), axis=-1)))
            * float(np.nanmax(np.linalg.norm(_finite(wide[1]), axis=-1), initial=0.0))
        )
        # A capped score is a difference of numbers of the size of the cap.
        reach += 4 * masking.get("softcap", 0.0)
        relative = 3 * self.member.rounding + 2.0**-20 * (1 + reach)
        absolute = 2.0**-24 * (wide[1].size + 1) if self.member.dtype == "float16" else 2.0**-120
        _placed(out.astype(np.float64), expected)
        finite = np.isfinite(expected)
        error = np.abs(np.where(finite, out.astype(np.float64), 0) - np.where(finite, expected, 0))
        allowed = relative * terms + absolute
        worst = np.unravel_index(np.argmax(np.where(finite, error - allowed, -1)), error.shape)
        assert (error[finite] <= allowed[finite]).all(), (
            f"out{list(map(int, worst))} = {out[worst]}, not {expected[worst]} +- {allowed[worst]}"
        )
        _placed(lse, expected_lse)
        seen = np.isfinite(expected_lse)
        np.testing.assert_allclose(
            lse[seen], expected_lse[seen], rtol=2e-6, atol=2e-6 + 2.0**-22 * reach
        )


def _finite(x: Array) -> Array:
    return np.where(np.isfinite(x), x, 0.0) if x.size else np.zeros((1, 1))


def _placed(actual: Array, expected: Array) -> None:
    assert actual.shape == expected.shape
    for kind in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(kind(actual), kind(expected), err_msg=kind.__name__)


def placed(
    memory: amdattn.DeviceArray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> amdattn.DeviceArray:
    """A view with any strides, `offset` elements into the memory of `memory`."""
    view = memory.view()
    owner: Any = view.owner
    address = view.address + offset * view.dtype.itemsize
    return amdattn.DeviceArray(address, shape, strides, view.dtype, owner)


Places = tuple[tuple[int, int, int], ...]  # row, head, column


def held_with_rows(call: Call, keys: int, places: Places, value: float) -> None:
    """NaN or infinities in rows of q concern their own rows of the result only."""
    q, k, v = operands(call.member, 140, keys, (2, 2))
    k = np.abs(k)
    for place in places:
        q[(0, *place)] = value
    out, _ = call.check(q, k, v)
    if value != -np.inf:
        assert np.isnan(out[0, 77, 1].astype(np.float32)).all()


def held_with_keys(
    calls: Sequence[Call], rows: int, keys: int, where: str, places: Places, value: float
) -> None:
    """NaN or infinities in k or v."""
    q, k, v = operands(calls[0].member, rows, keys, (2, 2))
    for place in places:
        {"k": k, "v": v}[where][(0, *place)] = value
    for call in calls:
        out, lse = call.check(q, k, v)
        assert not np.isfinite(out.astype(np.float32)).all()
        if where == "v":
            assert np.isfinite(lse).all()


@functools.cache
def _every_case() -> tuple[OfOperation, ...]:
    """Found once: thousands of plans tell whether each kernel has one."""
    return tuple(every_case(0))


def held_in_checked_mode(call: Call, count: int) -> None:
    """All that `amdattn check` runs of the kernel of a call, under so many schedules."""
    kernel = call.plan(*operands(call.member, 1, 1)).forward.kernel
    subjects = [one for one in _every_case() if one.case.kernel == kernel.name]
    assert subjects
    log = FindingLog()
    for subject in subjects:
        for _ in schedules.run(subject, schedules.schedules(count), log):
            pass
    assert log.num_launches
    assert not [str(finding) for finding in log if finding.severity == ERROR]


class Guarded:
    """A device array inside a larger one of poison."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, guard: int = GUARD) -> None:
        self._shape = shape
        self._poison = POISON[dtype.itemsize]
        self._where = (*(slice(1, -1) for _ in shape[:-1]), slice(guard, -guard))
        wide = (*(n + 2 for n in shape[:-1]), shape[-1] + 2 * guard)
        self._bits = np.dtype(f"u{dtype.itemsize}")
        self._dtype = dtype
        self._array = amdattn.asarray(np.full(wide, self._poison, self._bits).view(dtype))
        self.inner = self._array[self._where]

    def taken(self) -> Array:
        """What is inside now; nothing around it may have changed, nothing inside be left."""
        after = self._array.numpy().view(self._bits)
        inside = after[self._where].copy()
        after[self._where] = self._poison
        assert (after == self._poison).all(), "written outside"
        assert self._dtype.itemsize == 1 or not (inside == self._poison).any(), "not written"
        return inside.view(self._dtype).reshape(self._shape)
