"""Launches of the kernels of attention's gradients, for the mutation campaign."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from amdattn.arch.props import DeviceProps
from amdattn.device.manifest import KernelSpec
from amdattn.ops.attention_backward import planning
from amdattn.ops.attention_backward.cases import OPERATION, BackwardCase, case, cases
from amdattn.ops.attention_backward.kernels import BACKWARD, ROUND, ROWS, SINKS, SUM
from amdattn.ops.attention_backward.splitting import Splits
from benchmarks.checker_mutation.operation import operation_case
from benchmarks.checker_mutation.subject import Case, Subject

_Options = Mapping[str, Any]
_SPLIT = {"num_splits": 2}


@dataclass(frozen=True)
class _NanBehind(BackwardCase):
    """With what is next to the columns of a head not a number."""

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """As of others, but for the last heads."""
        made = super().inputs(seed)
        for name in ("dout", "q", "k", "v"):
            made[name][..., -1, :] = np.nan
        return made


@dataclass(frozen=True)
class _NanKeys(BackwardCase):
    """With keys that are not numbers, but for the first one.

    Of them is what a workgroup has had in LDS before its loop.
    """

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """As of others, but for those keys."""
        made = super().inputs(seed)
        made["k"][:, 1:] = np.nan
        return made


def backward_subject(kernel: KernelSpec, props: DeviceProps) -> Subject:
    """A kernel of the family."""
    made = tuple(_launches(kernel, props))
    return Subject(kernel.name, kernel.read_code_object(), kernel.symbol, made)


def _launches(kernel: KernelSpec, props: DeviceProps) -> Iterator[Case]:
    if kernel.op == BACKWARD:
        given = [*cases(kernel), *_of_keys(kernel)]
        wild = given[:1]
    else:
        dtype = "bfloat16" if kernel.op == SINKS else kernel.dtype  # which has float32 alone
        given = wild = [case(dtype=dtype, **options) for options in _SMALL[kernel.op]]
        for one in given:
            if one.lengths and kernel.op in (SUM, ROUND):
                made = operation_case(OPERATION, _with_room(one), kernel, props)
                yield _filled(made, ("dq", "dk", "dv"))
    for one in given:
        yield _in_order(operation_case(OPERATION, one, kernel, props), one)
    for one, splits in _of_some_whole(kernel):
        # As plans have it of more work than a campaign can launch.
        with mock.patch.object(planning, "best_splits", return_value=splits):
            made = operation_case(OPERATION, one, kernel, props)
        yield _filled(_in_order(made, one), ("dk", "dv"))
    for kind in ("wild", "nothing"):
        for one in wild:
            made = operation_case(OPERATION, one, kernel, props, wild=kind)
            if kernel.op != ROWS:  # which no launch comes before
                yield _in_order(made, one)


def _with_room(one: BackwardCase) -> BackwardCase:
    """The same lengths in arrays that have rows for more: heads begin inside of what a lane has."""
    p = one.problem.forward
    forward = dataclasses.replace(p, total_q=p.total_q + 100, total_kv=p.total_kv + 72)
    return dataclasses.replace(one, problem=dataclasses.replace(one.problem, forward=forward))


def _in_order(made: Case, one: BackwardCase) -> Case:
    """With the order of sequences that the launch before would have written, not of any numbers."""
    order = np.argsort([-rows for rows, _ in one.lengths], kind="stable").astype(np.int32)
    buffers = tuple(
        dataclasses.replace(buffer, data=order.tobytes())
        if buffer.name == "order" and not buffer.output
        else buffer
        for buffer in made.buffers
    )
    return dataclasses.replace(made, buffers=buffers)


def _filled(made: Case, names: tuple[str, ...]) -> Case:
    """With something in these results, of which a part is left as it is."""
    buffers = tuple(
        dataclasses.replace(buffer, data=b"\xff" * buffer.nbytes)
        if buffer.output and buffer.name in names
        else buffer
        for buffer in made.buffers
    )
    return dataclasses.replace(made, buffers=buffers)


def _of_keys(kernel: KernelSpec) -> Iterator[BackwardCase]:
    """Two blocks of keys, to whose sums of dQ the order of two terms is nothing; splits of them.

    Whole blocks and tiles and cut ones, with and without a mask; blocks and tiles that see nothing.
    """
    keys, rows = kernel.tile["kv"], kernel.tile["q"]
    two, whole = keys + keys // 4 + 1, 2 * keys
    dims = {"head_dim": kernel.params["head_dim"], "head_dim_v": kernel.params["head_dim_v"]}
    fewer = {"head_dim": dims["head_dim"] - 40, "head_dim_v": dims["head_dim_v"] - 24}
    of_both: _Options = {"num_heads_q": 4, "num_heads_kv": 2}
    some: tuple[_Options, ...] = (
        {**dims, "seqlen_q": 5 * rows, "seqlen_kv": whole},
        {**dims, "seqlen_q": 4 * rows + 3, "seqlen_kv": two, "causal": True, **of_both},
        {**dims, "seqlen_q": two, "seqlen_kv": two, "window_size": (keys // 2, 7)},
        {**fewer, "seqlen_q": 3 * rows - 1, "seqlen_kv": two, "batch": 2, **of_both},
        {**dims, "seqlen_q": rows, "seqlen_kv": two, "top_left": True, "causal": True},
        {**dims, "seqlen_q": two, "seqlen_kv": 9, "causal": True, "out_dtype": "float32"},
        {**dims, "seqlen_q": 6 * rows, "seqlen_kv": two, "num_heads_q": 2, **_SPLIT},
        {**dims, "seqlen_q": 6 * rows, "seqlen_kv": two, "num_splits": 3, "causal": True},
        {**fewer, "num_heads_q": 2, "causal": True, "lengths": ((2 * rows, two), (3, 0), (0, 9))},
    )
    sizes = {"seqlen_q": 2 * rows + 1, "seqlen_kv": two}
    next_to_it: _Options = {**fewer, **sizes, "num_heads_q": 2, "num_heads_kv": 2}
    softcap = {"softcap": 2.0} if kernel.accepts["softcaps"][1] else {}
    for deterministic in kernel.accepts["deterministic"]:
        of_all: dict[str, Any] = {"deterministic": deterministic, "kernel": kernel.name, **softcap}
        for options in (*some, *_of_columns(kernel)):
            yield case(dtype=kernel.dtype, **of_all, **options)
        behind = case(dtype=kernel.dtype, **of_all, **next_to_it)
        yield _NanBehind(**_fields(behind))
        of_block = {**dims, "seqlen_q": 2 * rows, "seqlen_kv": keys}
        yield _NanKeys(**_fields(case(dtype=kernel.dtype, **of_all, **of_block)))


def _of_some_whole(kernel: KernelSpec) -> Iterator[tuple[BackwardCase, Splits]]:
    """Blocks that are not split before others that are, or those of short sequences."""
    if kernel.op == SUM:
        several: _Options = {"num_heads_q": 4, "num_heads_kv": 4, "lengths": _LENGTHS}
        dense: _Options = {"seqlen_q": 40, "seqlen_kv": 700, "num_heads_q": 2, "head_dim": 24}
        given: tuple[_Options, ...] = ({}, {"out_dtype": "float32"})
        for more in given:
            yield case(dtype=kernel.dtype, **several, **more), Splits(1, 2, whole_rows=20)
            yield case(dtype=kernel.dtype, **dense, **more), Splits(1, 2, whole_blocks=2)
        # One sequence, a later one, and the second, third or fourth row of a lane alone.
        later = (((3, rows), (40, 90)) for rows in (16, 32, 48))
        for lengths in ((40, 90),), ((3, 0), (40, 90), (17, 5)), *later:
            yield case(dtype=kernel.dtype, lengths=lengths), Splits(1, 2, whole_rows=20)
        many: _Options = {"seqlen_q": 20, "seqlen_kv": 300, "num_heads_q": 10, "num_heads_kv": 10}
        yield case(dtype=kernel.dtype, head_dim=8, **many), Splits(1, 2, whole_blocks=17)
    if kernel.op == BACKWARD:
        keys, rows = kernel.tile["kv"], kernel.tile["q"]
        dims = {"head_dim": kernel.params["head_dim"], "head_dim_v": kernel.params["head_dim_v"]}
        of_both: _Options = {"kernel": kernel.name, "num_heads_q": 4, "num_heads_kv": 2}
        lengths = ((4 * rows, keys + 9), (3, 0), (0, 9), (rows, 20))
        for deterministic in kernel.accepts["deterministic"]:
            more = {"dtype": kernel.dtype, "deterministic": deterministic, **dims, **of_both}
            dense = {"seqlen_q": 4 * rows, "seqlen_kv": keys + 9}
            yield case(**dense, **more), Splits(2, 2, whole_blocks=3)
            yield case(lengths=lengths, **more), Splits(1, 2, whole_rows=rows)


def _fields(one: BackwardCase) -> dict[str, Any]:
    return {f.name: getattr(one, f.name) for f in dataclasses.fields(one)}


def _of_columns(kernel: KernelSpec) -> Iterator[_Options]:
    """Heads that end inside of each 16 columns, of results of either type.

    With keys of every tile of a wave.
    """
    most, most_v = kernel.params["head_dim"], kernel.params["head_dim_v"]
    keys = kernel.tile["kv"]
    sizes = {"seqlen_q": kernel.tile["q"] + 1, "seqlen_kv": keys - keys // 4 + 1}
    for column in range(8, max(most, most_v), 16):
        dims = {"head_dim": min(column, most - 8), "head_dim_v": max(most_v - column, 8)}
        for out_dtype in ("", "float32"):
            yield {**dims, **sizes, "out_dtype": out_dtype}


_LENGTHS = ((40, 90), (3, 0), (0, 9), (17, 5))
# Of the kernels around it: columns that fill lanes and that do not, rows around what workgroups
# have, sequences of one length and of several, results of either type.
_SMALL: Mapping[str, tuple[_Options, ...]] = {
    ROWS: (
        {"seqlen_q": 40, "seqlen_kv": 20, "num_heads_q": 2},
        {"seqlen_q": 33, "seqlen_kv": 9, "batch": 2, "num_heads_q": 3, "dlse": True},
        {"seqlen_q": 50, "seqlen_kv": 20, "causal": True, "dlse": True, "head_dim": 256},
        {"seqlen_q": 17, "seqlen_kv": 20, "head_dim": 200, "head_dim_v": 136, "layout": "bhsd"},
        {"seqlen_q": 17, "seqlen_kv": 20, "head_dim": 72, "head_dim_v": 8},
        *(
            {"seqlen_q": rows, "seqlen_kv": 20, "head_dim": 24, "head_dim_v": 40}
            for rows in (16, 32)  # the last one of either half of a workgroup's
        ),
        {"num_heads_q": 2, "causal": True, "dlse": True, "lengths": _LENGTHS},
    ),
    SUM: (
        {"seqlen_q": 40, "seqlen_kv": 70, "num_heads_q": 2, **_SPLIT},
        {"seqlen_q": 90, "seqlen_kv": 75, "batch": 2, "num_heads_q": 4, "num_splits": 6},
        {"seqlen_q": 40, "seqlen_kv": 70, "num_splits": 3, "out_dtype": "float32"},
        {"seqlen_q": 60, "seqlen_kv": 3, "batch": 9, "num_heads_q": 5, "num_heads_kv": 5, **_SPLIT},
        {"seqlen_q": 40, "seqlen_kv": 70, "head_dim": 104, "head_dim_v": 40, **_SPLIT},
        {"num_heads_q": 4, "num_heads_kv": 4, "lengths": _LENGTHS, **_SPLIT},
        {
            **{"num_heads_q": 8, "num_heads_kv": 4, "causal": True, "num_splits": 4},
            **{"lengths": _LENGTHS, "out_dtype": "float32"},
        },
    ),
    ROUND: (
        {"seqlen_q": 40, "seqlen_kv": 20, "num_heads_q": 2},
        {"seqlen_q": 13, "seqlen_kv": 20, "batch": 3, "num_heads_q": 3, "head_dim": 104},
        {"seqlen_q": 3, "seqlen_kv": 20, "head_dim": 256, "layout": "bhsd"},
        {"num_heads_q": 2, "causal": True, "lengths": _LENGTHS},
    ),
    SINKS: (
        {"seqlen_q": 40, "seqlen_kv": 20, "num_heads_q": 3, "sinks": True},
        {"seqlen_q": 300, "seqlen_kv": 5, "batch": 2, "num_heads_q": 2, "sinks": True},
        {"num_heads_q": 2, "causal": True, "sinks": True, "lengths": _LENGTHS},
    ),
}
