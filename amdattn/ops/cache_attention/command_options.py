"""Options of commands for attention over a cache."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from amdattn.op.options import REQUIRED, Option
from amdattn.ops.attention.command_options import OPTIONS as OF_FORWARD
from amdattn.ops.cache_attention.cascade_problem import CascadeProblem
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.kernels import MOST_QUERIES
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

_AS_FORWARD = {option.name: option for option in OF_FORWARD}
DECODE_OPTIONS = (
    _AS_FORWARD["batch"],
    Option("seqlen_q", int, 1, "Queries per sequence.", ("--seqlen-q", "-sq")),
    Option("seqlen_kv", int, REQUIRED, "The most keys of a sequence.", ("--seqlen-kv", "-skv")),
    _AS_FORWARD["heads_q"],
    Option(
        *("heads_kv", int, 0, "Heads of the cache, a divisor of heads-q; 0: as heads-q."),
        ("--heads-kv", "-hkv"),
    ),
    *(_AS_FORWARD[name] for name in ("head_dim", "head_dim_v", "dtype", "softmax_scale")),
    *(_AS_FORWARD[name] for name in ("causal", "window_size", "softcap", "sinks")),
    Option("return_lse", bool, False, "Also return the log-sum-exp.", ("--return-lse",)),
    Option("seqlen_new", int, 0, "Keys per sequence that are appended first."),
    Option("page_size", int, 0, "Keys of a page; 0: no pages."),
    Option("kv_dtype", str, "", "Element type of the cache; default: dtype."),
    Option("kv_layout", str, "NHD", "Layout of pages: NHD, packed or shuffled."),
    Option("num_splits", int, 0, "Parts of every tile; 0: by the lengths."),
)


def _changed(without: tuple[str, ...], **changes: dict[str, Any]) -> tuple[Option, ...]:
    return tuple(
        dataclasses.replace(option, **changes.get(option.name, {}))
        for option in DECODE_OPTIONS
        if option.name not in without
    )


PREFILL_OPTIONS = (
    *_changed(("num_splits",), seqlen_q={"default": 2048}),
    Option("num_splits", int, 0, "Splits of keys; 0: the plan chooses."),
    Option("total_q", int, 0, "Queries of all chunks of several lengths; 0: all have seqlen-q."),
    Option("max_seqlen_kv", int, 0, "The most keys of a sequence; 0: seqlen-kv."),
    Option("max_total_kv", int, 0, "The most keys of all sequences; 0: batch times max-seqlen-kv."),
    Option("copies", str, "", "Always copy q, kv or qkv to rows."),
)
CASCADE_OPTIONS = (
    *_changed(("window_size", "kv_dtype"), seqlen_kv={"help": "Own keys of a sequence, at most."}),
    Option("prefix_len", int, REQUIRED, "Keys of the shared prefix."),
    Option("prefix_pages", int, 0, "Pages of the cache with the prefix; 0: separate arrays."),
)


def _problem(kind: type[DecodeProblem], heads_q: int, heads_kv: int, **options: Any) -> Any:
    """The problem of these options; rows are appended only if lengths are given."""
    return kind(
        num_heads_q=heads_q,
        num_heads_kv=heads_kv or heads_q,
        cache_seqlens=bool(options["seqlen_new"]),
        **options,
    )


decode_problem = partial(_problem, DecodeProblem)
prefill_problem = partial(_problem, PrefillProblem)


def cascade_problem(
    prefix_len: int, prefix_pages: int, return_lse: bool, **options: Any
) -> CascadeProblem:
    """The problem of these options with a shared prefix."""
    kind = PrefillProblem if options["seqlen_q"] > MOST_QUERIES else DecodeProblem
    return CascadeProblem(_problem(kind, **options), prefix_len, prefix_pages, return_lse)
