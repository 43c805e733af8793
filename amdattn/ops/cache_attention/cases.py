"""Cases of attention over a cache: their inputs, and the expected results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amdattn.dtypes import as_dtype
from amdattn.op.operation import Case, Expected
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.layouts import LAYOUTS
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.ops.cache_attention.reference import decode, places

# Largest relative error of one rounding, and half of a denormal.
_ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}
_LEAST = {"bfloat16": 2.0**-134, "float16": 2.0**-25}
_FLOAT32 = 2.0**-23
_OF_8_BITS, _LEAST_NORMAL = 2.0**-3, 2.0**-6  # of e4m3: one unit of the last place
_OF_WEIGHTS = 2.0**-12  # exponentials, caps and sums in float32
# Errors in addition to those of decoding: 8-bit keys are rounded once with their scales, and scores
# are then sums of products that are not exact.
_OF_SCALED = 2.0**-7


@dataclass(frozen=True)
class CacheCase(Case[DecodeProblem]):
    """Normally distributed rows; rows beyond the last key are NaN, unless keys are appended.

    Attributes
    ----------
    lengths : tuple of int
        Keys of the sequences before the call, repeated in turn; the seed decides the first one.
    shared : bool
        Whether sequences share their first page, like those of one prompt.
    chunks : tuple of int
        Queries of the sequences, repeated in turn, for chunks of several lengths; `lengths` are
        then their keys.
    """

    lengths: tuple[int, ...] = ()
    shared: bool = False
    chunks: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """One line for people."""
        lengths, chunks = (",".join(map(str, x)) for x in (self.lengths, self.chunks))
        title = super().title + f" lengths={lengths}" * bool(lengths) + " shared" * self.shared
        return title + f" chunks={chunks}" * bool(chunks)

    def inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        """Random host arrays by operand, the same for the same seed."""
        if self.problem.is_ragged:
            return self._ragged_inputs(seed)
        p, rng = self.problem, np.random.default_rng(seed)
        element = as_dtype(p.dtype).numpy()

        def normal(*shape: int) -> NDArray[Any]:
            return rng.standard_normal(shape, np.float32).astype(element)

        of_cache = as_dtype(p.kv_dtype).numpy()
        made = {"q": normal(p.batch, p.seqlen_q, p.num_heads_q, p.head_dim)}
        for name in ("k_cache", "v_cache"):
            made[name] = normal(*p.cache_shape(name)).astype(of_cache)
        if p.seqlen_new:
            new = p.batch, p.seqlen_new, p.num_heads_kv
            made |= {"k": normal(*new, p.head_dim), "v": normal(*new, p.head_dim_v)}
        if p.rotary_dim:
            angles = rng.uniform(0, 2 * np.pi, (p.rotary_positions, p.rotary_dim // 2))
            of_angles = as_dtype(p.rotary_dtype).numpy()
            made["rotary_cos"] = np.cos(angles).astype(of_angles)
            made["rotary_sin"] = np.sin(angles).astype(of_angles)
        if p.cache_seqlens:
            most = p.seqlen_kv - p.seqlen_new
            lengths = np.resize(np.roll(self.lengths or (most,), seed), p.batch)
            made["cache_seqlens"] = np.minimum(lengths, most).astype(np.int32)
        if p.cache_batch_idx:
            order = rng.permutation(p.num_pages)[: p.batch]
            made["cache_batch_idx"] = np.resize(order, p.batch).astype(np.int32)
        if p.cache_leftpad:
            made["cache_leftpad"] = rng.integers(0, p.seqlen_kv // 3 + 1, p.batch, np.int32)
        if p.page_size:
            made["block_table"] = self._table(rng)
        for name in ("k", "v"):
            if p.is_scaled(name):
                # Powers of two, so that a quotient that is halfway is halfway in float32 too.
                exponents = rng.integers(-3, 3, (p.num_heads_kv, 1))
                made[f"{name}_descale"] = np.exp2(exponents).astype(np.float32)
        if p.sinks:
            made["sinks"] = rng.standard_normal(p.num_heads_q, np.float32)
        if not p.seqlen_new:
            self._spoil(made)
        return made

    def _table(self, rng: np.random.Generator) -> NDArray[np.int32]:
        """A table of pages in random order; pages repeat in its rows if there are too few."""
        p = self.problem
        pages = np.resize(rng.permutation(p.num_pages), (p.batch, p.pages_of_sequence))
        if self.shared:
            pages[:, 0] = pages[0, 0]
        return pages.astype(np.int32)

    def _spoil(self, inputs: dict[str, NDArray[Any]]) -> None:
        """Write NaN where no sequence has a key."""
        p = self.problem
        used = np.zeros((p.num_pages, p.page_keys), np.bool_)
        for b in range(p.batch):
            keys = int(inputs["cache_seqlens"][b]) if p.cache_seqlens else p.seqlen_kv
            used[places(p, inputs, b, keys)] = True
        for name, layout in LAYOUTS[p.kv_layout].items():
            rows = np.array(layout.rows(inputs[name]))
            rows[~used] = np.nan
            inputs[name] = np.ascontiguousarray(layout.of_rows(rows, p.chunk))

    def _ragged_inputs(self, seed: int) -> dict[str, NDArray[Any]]:
        p = self.problem
        rows = self._rows(seed)
        lengths = np.roll([keys for _, keys in rows], -seed)  # undoes the shift by the seed
        alike = dataclasses.replace(
            self, problem=_decoded(p, p.batch, p.seqlen_q), lengths=tuple(lengths), chunks=()
        )
        made = alike.inputs(seed)
        if p.has_key_sums:
            del made["cache_seqlens"]
        q = made["q"].reshape(-1, p.num_heads_q, p.head_dim)
        made["q"] = np.resize(q, (p.total_q, p.num_heads_q, p.head_dim))
        of_q, of_kv = np.cumsum([(0, 0), *rows], axis=0).astype(np.int32).T.copy()
        made["cu_seqlens_q"] = of_q
        if p.has_key_sums:
            made["cu_seqlens_kv"] = of_kv
        if p.sinks:  # in the order of the operands
            made["sinks"] = made.pop("sinks")
        return made

    def _rows(self, seed: int) -> list[tuple[int, int]]:
        """Queries and keys of every sequence; the seed decides which one is first."""
        p = self.problem
        pairs = list(zip(self.chunks, self.lengths, strict=True))
        turn = seed % len(pairs)
        pairs = pairs[turn:] + pairs[:turn]
        assert len(pairs) == p.batch and sum(self.chunks) == p.total_q
        return pairs


def _decoded(p: DecodeProblem, batch: int, rows: int) -> DecodeProblem:
    """The problem with `rows` queries for each of `batch` sequences."""
    named: dict[str, Any] = {"batch": batch, "seqlen_q": rows, "total_q": 0, "max_total_kv": 0}
    return dataclasses.replace(p, cache_seqlens=True, **named)


def expected(case: CacheCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Expected results in float64; chunks of several lengths are computed one by one."""
    p = case.problem
    if not isinstance(p, PrefillProblem):
        return _of_sequences(case, inputs)
    if not p.is_ragged:
        return _loosened(p, _of_sequences(case, inputs))
    parts: dict[str, list[Expected]] = {}
    sums = inputs["cu_seqlens_q"]
    keys = np.diff(inputs["cu_seqlens_kv"]) if p.has_key_sums else inputs["cache_seqlens"]
    for b, (q0, q1) in enumerate(zip(sums, sums[1:], strict=False)):
        if q0 == q1:
            continue
        one = {**inputs, "q": inputs["q"][None, q0:q1]}
        one["cache_seqlens"] = keys[b : b + 1]
        one["block_table"] = inputs["block_table"][b : b + 1]
        alone = dataclasses.replace(case, problem=_decoded(p, 1, int(q1 - q0)), chunks=())
        for name, found in _of_sequences(alone, one).items():
            parts.setdefault(name, []).append(found)
    joined = {}
    for name, of_sequences in parts.items():
        axis = 1 if name == "lse" else 0
        values = [one.values[0] for one in of_sequences]
        allowed = [np.broadcast_to(one.tolerance, one.values.shape)[0] for one in of_sequences]
        joined[name] = Expected(np.concatenate(values, axis), np.concatenate(allowed, axis))
    return _loosened(p, joined)


def _loosened(p: DecodeProblem, found: dict[str, Expected]) -> dict[str, Expected]:
    """Expected results with the additional error that rounding of scaled keys causes."""
    if not (p.is_quantized and _is_scaled(p)):
        return found
    for name in ("out", "lse"):
        if name in found:
            must = found[name]
            more = _OF_SCALED * (1 + np.abs(np.where(np.isfinite(must.values), must.values, 0)))
            found[name] = Expected(must.values, must.tolerance + more)
    return found


def _is_scaled(p: DecodeProblem) -> bool:
    """Whether elements have a scale that is not a power of two."""
    return any(np.frexp(scale)[0] != 0.5 for scale in (p.k_descale, p.v_descale))


def _of_sequences(case: CacheCase, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Expected]:
    """Expected results, with errors from rounding of weights and results, and from float32.

    Rotated rows are rounded too: to the nearest of the float64 value, or to its neighbour.
    """
    p, found = case.problem, decode(case.problem, inputs)
    one = _ROUNDING[p.dtype]
    of_weights = one * (2 if p.rotary_dim else 1) + _OF_WEIGHTS
    out = one * np.abs(found.out) + of_weights * found.weighted
    out += _LEAST[p.dtype] * (1 + p.seqlen_kv)
    of_scores = _FLOAT32 * p.head_dim * 4 + (one if p.rotary_dim else 0)
    finite = np.abs(np.where(np.isfinite(found.lse), found.lse, 0))
    must = {"out": Expected(found.out, out)}
    if p.return_lse:
        must["lse"] = Expected(found.lse, of_scores * (1 + finite))
    if p.seqlen_new:
        # One rounding of products and sums in float32; then perhaps to the neighbour in 8 bits.
        of_turned = (one + 4 * _FLOAT32) * np.abs(found.k_cache) + 8 * _FLOAT32
        if p.is_quantized:
            of_turned = of_turned + _OF_8_BITS * np.maximum(np.abs(found.k_cache), _LEAST_NORMAL)
        must["k_cache"] = Expected(found.k_cache, np.where(found.turned, of_turned, 0))
        must["v_cache"] = Expected(found.v_cache, np.zeros_like(found.v_cache))
    return must


# batch, seqlen_q, seqlen_kv, num_heads_q, num_heads_kv, head_dim.
Sizes = tuple[int, int, int, int, int, int]


def case(
    kind: type[DecodeProblem], sizes: Sizes, lengths: tuple[int, ...] = (), **options: Any
) -> CacheCase:
    """A case with a problem of this kind, with lse, and with lengths if they are given."""
    named = {name: options.pop(name) for name in ("kernel", "shared", "chunks") if name in options}
    chunks = named.get("chunks", ())
    options = {"return_lse": True, "cache_seqlens": bool(lengths) and not chunks, **options}
    options |= {"total_q": sum(chunks)} if chunks else {}
    make: Any = kind
    return CacheCase(make(*sizes, **options), lengths=lengths, **named)


def rotary(seqlen_kv: int, rows: int, dim: int, interleaved: bool) -> dict[str, Any]:
    """Options of rotary embeddings of `dim` channels, for rows appended to a full cache."""
    return {
        "rotary_dim": dim,
        "rotary_positions": seqlen_kv + rows,
        "rotary_interleaved": interleaved,
    }
