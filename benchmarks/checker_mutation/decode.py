"""Launches of the kernels of attention over a cache, for the mutation campaign."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import as_dtype
from amdattn.ops.cache_attention.cases import CacheCase
from amdattn.ops.cache_attention.decode_cases import OPERATION
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import MOST_QUERIES
from amdattn.ops.cache_attention.layouts import CHUNK_BYTES
from benchmarks.checker_mutation.operation import operation_case
from benchmarks.checker_mutation.subject import Case, Subject, unwritten

# Of a counter, as decode/combine.h has it: the run that counted last is above this bit.
_GENERATION_BIT = 17
_GENERATION, _OLDER = 2, 1  # the launch, and one before it that was aborted


# batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim.
_Sizes = tuple[int, int, int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Launch:
    sizes: _Sizes
    lengths: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # of DecodeProblem
    cus: int = 0  # of a smaller device, of which a workgroup has more to do; 0: all
    stale: bool = False  # a launch before was aborted
    large: bool = False  # v, so that sums of products with it overflow
    nan: bool = False  # in heads of q, k and the cache, behind the columns of those before
    floats: bool = False  # results of float32, as for a merge with other keys
    unseen: bool = False  # every key, though there are some, which are appended
    sunk: bool = False  # sinks of which some are none


class _NanBehind(CacheCase):
    """With what is next to the columns of a head not a number."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """As of others, but for the last heads, of q every second one: rows of all tiles are."""
        made = super().inputs(seed)
        for name in {"k", "k_cache"} & made.keys():
            made[name][..., -1, :] = np.nan
        made["q"][..., 1::2, :] = np.nan
        return made


class _Unseen(CacheCase):
    """With as many keys left out as the cache has room for."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """As of others, but for what is left out."""
        made = super().inputs(seed)
        made["cache_leftpad"][:] = self.problem.seqlen_kv
        return made


class _Sunk(CacheCase):
    """With sinks of which every second one is minus infinity."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """As of others, but for the sinks."""
        made = super().inputs(seed)
        made["sinks"][1::2] = -np.inf
        return made


class _Large(CacheCase):
    """With rows of V near the greatest number."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """As of others, but for V."""
        made = super().inputs(seed)
        v = made["v_cache"]
        with np.errstate(over="ignore"):  # to infinities, in float16
            made["v_cache"] = (v.astype(np.float32) * np.float32(6e37)).astype(v.dtype)
        return made


def decode_subject(kernel: KernelSpec, props: DeviceProps) -> Subject:
    """A kernel of the family."""
    launches = [_fitting(launch, kernel) for launch in _launches(kernel)]
    made = tuple(_case(launch, kernel, props) for launch in launches if launch is not None)
    return Subject(kernel.name, kernel.read_code_object(), kernel.symbol, made)


def _fitting(launch: _Launch, kernel: KernelSpec) -> _Launch | None:
    """The same over a cache as the kernel takes it; None if there is none of that layout."""
    if not kernel.params["packed"]:
        return launch
    options = dict(launch.options)
    if launch.nan or options.get("cache_leftpad") or options.get("cache_batch_idx"):
        return None
    batch, seqlen_q, seqlen_kv, heads_q, heads_kv, head_dim = launch.sizes
    page = options.setdefault("page_size", 16)
    chunk = CHUNK_BYTES // as_dtype(kernel.params["kv_dtype"]).itemsize
    keys, columns = -(-seqlen_kv // page) * page, -(-head_dim // chunk) * chunk
    options |= {"kv_layout": "packed", "rotary_positions": 0}
    if options.get("rotary_dim"):
        options["rotary_positions"] = keys + MOST_QUERIES
    sizes = batch, seqlen_q, keys, heads_q, heads_kv, columns
    return dataclasses.replace(launch, sizes=sizes, options=options)


def _case(launch: _Launch, kernel: KernelSpec, props: DeviceProps) -> Case:
    cus, stale = launch.cus, launch.stale
    if cus:
        props = dataclasses.replace(props, num_cus=cus, num_xcds=1)
    options: dict[str, Any] = {
        **{"return_lse": True, "cache_seqlens": bool(launch.lengths), "dtype": kernel.dtype},
        **{"kv_dtype": kernel.params["kv_dtype"], **launch.options},
    }
    problem = DecodeProblem(*launch.sizes, **options)
    kinds = {
        **{_NanBehind: launch.nan, _Large: launch.large},
        **{_Unseen: launch.unseen, _Sunk: launch.sunk},
    }
    kind = next((kind for kind, is_given in kinds.items() if is_given), CacheCase)
    case = kind(problem, "", kernel.name, launch.lengths)
    counted = _OLDER << _GENERATION_BIT | 1 if stale else 0
    made = operation_case(OPERATION, case, kernel, props, run=_GENERATION, at_rest=counted)
    if launch.floats:
        made = _of_floats(made, kernel)
    name = f"{made.name}{f' on {cus} CUs' * bool(cus)}{' stale' * stale}{' NaN' * launch.nan}"
    name += " large" * launch.large + " floats" * launch.floats + " unseen" * launch.unseen
    name += " sunk" * launch.sunk
    return dataclasses.replace(made, name=name)


def _of_floats(case: Case, kernel: KernelSpec) -> Case:
    """The same launch as a cascade has it: O stays float32, logarithms are pairs of them.

    That argument and the sizes of results are all that differs in its plan.
    """
    at = next(offset for name, offset, *_ in kernel.kernarg.fields if name == "keeps_floats")
    block = bytearray(case.kernarg)
    block[at : at + 4] = (1).to_bytes(4, "little")
    times = {"out": 4 // as_dtype(kernel.dtype).itemsize, "lse": 2}
    buffers = tuple(
        unwritten(b.name, b.nbytes * times[b.name]) if b.name in times else b for b in case.buffers
    )
    return dataclasses.replace(case, kernarg=bytes(block), buffers=buffers)


def _launches(kernel: KernelSpec) -> list[_Launch]:
    """Sequences of odd lengths, around turns of the waves and without a key.

    Work in equal shares that begin and end inside of items, in given parts of which there are more
    than are loaded at a time, and alone; more than 64 sequences; single keys, with few other loads
    under way; each kind of cache, of mask and of
    what is appended, also by a second tile of rows, which leaves the cache alone.
    """
    columns, rows, keys = kernel.params["columns"], kernel.params["rows"], kernel.tile["keys"]
    two_tiles = rows // 4 + 1  # heads of a group, of which each has four queries
    # Of a kernel of several tiles heads, of which each has a query, that come to the last one.
    heads, pairs, fours = (2, 1, 2) if rows == 16 else (rows - 3, rows // 2, rows // 4)
    paged = {"page_size": 16}
    steps = {**paged, "causal": True}
    narrow = {"head_dim_v": columns - 24}
    wide = {"rotary_dtype": "float32"}
    seen = {"cache_leftpad": True, "window_size": (keys + 9, 1)}

    def turned(seqlen_kv: int, dim: int, interleaved: bool) -> dict[str, Any]:
        return {
            "rotary_dim": dim,
            "rotary_positions": seqlen_kv + MOST_QUERIES,
            "rotary_interleaved": interleaved,
        }

    two, more = 2 * keys, 2 * keys + 32
    single = (32, 33, 34, 35, 48, 49, 50, 51)  # one for each key of a lane, of both 16
    return [
        _Launch((1, 1, keys - 1, 2, 1, columns), options={"return_lse": False}),
        _Launch((3, 1, 16, 2, 1, columns), (0, 5, 16), {"sinks": True}),
        _Launch((3, 1, 16, 2, 1, 24), (0, 5, 16)),
        _Launch(
            *((3, 1, two + 64, 4, 2, columns), (keys + 3, 37, two + 2)),
            {"seqlen_new": 1, **steps},
            cus=3,
        ),
        _Launch(
            *((2, 1, two, 3, 1, columns - 8), (two - 1, keys + 1)),
            {**paged, **narrow},
            stale=True,
        ),
        _Launch(
            *((3, 4, more, two_tiles, 1, columns), (keys - 20, 21, two - 15)),
            {"seqlen_new": 40, **steps},
            cus=1,
        ),
        _Launch(
            *((3, 4, more, two_tiles, 1, columns), (keys - 20, 21, two - 15)),
            {"seqlen_new": 40, **steps, **turned(more, columns, interleaved=False)},
            cus=1,
        ),
        *(
            _Launch(
                *((3, 2, more, 2 * pairs, 2, columns - 8), (keys - 20, two - 15, 13)),
                {"seqlen_new": 40, **narrow, **turned(more, columns - 16, interleaved)},
                cus=2,
            )
            for interleaved in (True, False)
        ),
        _Launch(
            *((2, 2, more, 2, 2, 24), (keys - 20, two - 15)),
            {"seqlen_new": 40, "head_dim_v": 16, **turned(more, 16, interleaved=False)},
            cus=2,
        ),
        *(
            _Launch(
                *((2, 1, more, 1, 1, columns), (keys - 20, two - 15)),
                {"seqlen_new": 40, **turned(more, dim, interleaved)},
                cus=1,
            )
            for dim in (16, 48, 80)
            for interleaved in (False, True)
            if dim <= columns
        ),
        _Launch((8, 4, 64, two_tiles, 1, 24), single, {"seqlen_new": 1}),
        _Launch(
            *((8, 4, two, two_tiles, 1, 24), tuple(keys + n for n in single)),
            {"seqlen_new": 1},
            cus=4,
        ),
        # In the third turn of a wave, of its 32 keys in the later 16.
        _Launch(
            *((2, 4, 3 * keys, two_tiles, 1, columns), (two + 17, two + 30)),
            {"seqlen_new": 3},
            cus=1,
        ),
        _Launch((1, 1, two - 5, 2, 2, 24), options={"head_dim_v": 16}, nan=True),
        # Waves without keys, whose only load of Q nothing uses; more rows than a tile has.
        *(
            _Launch((1, 1, two - 40, 2 * rows + 2, 2, 24), options=parts)
            for parts in ({}, {"num_splits": 2})
        ),
        # Heads that end inside of each step of the columns.
        _Launch(
            *((2, 4, more, 2 * two_tiles, 2, 24), (keys - 20, two - 15)),
            {"seqlen_new": 40, "head_dim_v": 16},
            cus=1,
            nan=True,
        ),
        *(
            _Launch(
                *((1, 4, keys + 32, rows // 2, 2, head_dim), (keys - 20,)),
                {"seqlen_new": 40, "head_dim_v": 16},
                cus=1,
                nan=True,
            )
            for head_dim in range(40, columns, 32)
        ),
        # In the first of them, of rows that are turned in every tile.
        *(
            _Launch(
                *((1, 4, keys + 32, rows // 2, 2, 24), (keys - 20,)),
                {"seqlen_new": 40, "head_dim_v": 16, **turned(keys + 32, 16, interleaved=False)},
                cus=1,
                nan=True,
            )
            for _ in range(rows > 16)
        ),
        _Launch(
            *((2, 1, keys + 32, 2, 1, columns), (keys - 2, keys + 27)),
            {"seqlen_new": 3, "num_splits": 2, **turned(keys + 32, columns // 2, interleaved=True)},
        ),
        # More parts than are loaded at a time; more than there are workgroups, which go on.
        _Launch(
            *((1, 1, 9 * keys, rows, 1, columns), (8 * keys + 7,)),
            {"num_splits": 9, "sinks": True},
        ),
        _Launch((3, 1, two - 5, 4, 2, columns), options={"num_splits": 2, **seen}, cus=3),
        # Scores of which some of any turn are far above those before; so far that it takes two
        # steps from one to the other, of turns, of waves and of parts.
        _Launch((2, 1, 6 * keys, heads, 1, columns), options={"softmax_scale": 2.0}, cus=1),
        *(
            _Launch((1, 1, 2 * two, heads, 1, columns), options={"softmax_scale": scale, **parts})
            for scale in (30.0, 1e11)  # of which the logarithm of a sum is no digit
            for parts in ({"num_splits": 1}, {"num_splits": 2})
        ),
        _Launch(
            *((1, 1, 2 * two, heads, 1, columns), ()),
            {"softmax_scale": 1e11, "sinks": True, "num_splits": 1},
        ),
        _Launch(
            *((2, 2, 3 * keys, 2, 1, columns), (3 * keys, two + 9)),
            {"cache_batch_idx": True, "num_pages": 3, "softcap": 20.0, "num_splits": 1, **seen},
        ),
        _Launch((1, 1, 3 * keys, 1, 1, columns), options=seen),
        _Launch((3, 1, two - 5, 2, 1, columns), options=seen),
        _Launch((3, 1, two - 5, 2, 1, columns), options=seen, cus=1),
        *(
            _Launch((1, 1, 5 * keys, 1, 1, columns), (5 * keys - 3,), kind, cus=1)
            for kind in ({}, paged)
        ),
        # More pages than a wave looks up at a time; the same where new keys come behind them, and
        # where the first attempts overflow.
        *(
            _Launch((1, 1, 36 * keys, 1, 1, columns), (35 * keys + 3,), kind, cus=1)
            for kind in (
                {},
                paged,
                {**paged, "num_splits": 1},
                {**paged, "num_splits": 1, "seqlen_new": 40},
                {"num_splits": 1, "seqlen_new": 40},
            )
        ),
        # Angles of float32; a window that begins inside of a turn; sums that overflow.
        *(
            _Launch(
                *((3, 2, more, 2 * pairs, 2, columns - 8), (keys - 20, two - 15, 13)),
                {"seqlen_new": 40, **turned(more, columns - 16, interleaved), **wide},
                cus=2,
            )
            for interleaved in (True, False)
        ),
        _Launch(
            *((2, 1, two, 3, 1, columns - 8), (two - 1, keys + 1)),
            {**paged, **narrow, "num_splits": 1, "window_size": (keys + 12, 1)},
        ),
        *(
            _Launch((1, 1, two - 5, heads, 1, columns), options=parts, large=True)
            for parts in ({"num_splits": 1}, {"num_splits": 2}, {"num_splits": 2, "sinks": True})
        ),
        # Results of float32, also of rows that see no key; sums that overflow, of which some keys
        # are left out.
        *(
            _Launch((3, 4, two, fours, 1, columns), (keys + 3, 0, 2), kind, floats=True)
            for kind in (
                {"num_splits": 1, "causal": True},
                {"num_splits": 2, "causal": True},
                {"num_splits": 2, "sinks": True, **narrow},
            )
        ),
        *(
            _Launch(
                *((2, 1, 3 * keys, 2, 1, columns), (1, 9)),
                {"seqlen_new": two + 9, "cache_leftpad": True, "num_splits": 2},
                floats=floats,
                unseen=True,
            )
            for floats in (False, True)
        ),
        *(
            _Launch((1, 1, two - 5, heads, 1, columns), options=parts, large=True, floats=True)
            for parts in ({"num_splits": 1}, {"num_splits": 2, "softmax_scale": 0.3})
        ),
        *(
            _Launch((3, 1, two - 5, 2, 1, columns), options={**seen, **kind}, cus=2, large=True)
            for kind in ({}, {"num_splits": 2})
        ),
        *(
            _Launch((2, 1, two, 2 * heads, 2, columns), options={"sinks": True, **parts}, sunk=True)
            for parts in ({"num_splits": 1}, {"num_splits": 2})
        ),
        # What is appended, of which no query sees the first keys; by one of two tiles of rows.
        *(
            _Launch(
                *((2, 1, more, group, 1, columns), (keys - 20, two - 15)),
                {"seqlen_new": 40, "window_size": (9, 1), **kind},
                cus=1,
            )
            for group in (2, rows + 1)
            for kind in ({}, paged)
        ),
        _Launch((66, 1, keys + 16, 1, 1, columns), (1, 2, 3, 4, 5, 6, keys + 1), seen, cus=38),
        _Launch((66, 1, keys + 16, 1, 1, columns), (1, 2, 3, 4, 5, 6, keys + 1), paged, cus=38),
        _Launch((66, 1, 16, 1, 1, columns), (1, 2, 3), {"sinks": True, **seen}),
        # Sequences of which it is asked whether two are the same.
        _Launch(
            *((66, 1, 16, 1, 1, 24), (1, 2, 3)),
            {"cache_batch_idx": True, "num_pages": 67, "seqlen_new": 1, "head_dim_v": 16},
        ),
    ]
