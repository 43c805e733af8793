"""One pass of some rows through all layers: memory, plans and launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import amdattn

from .config import Config
from .products import Eights, Products
from .weights import Layer, Weights

if TYPE_CHECKING:
    from .model import Decoder

# Rows that a product normalises in less time than a launch before it takes.
_NORMED_BY_PRODUCTS = 64
FEW = 16  # queries of a sequence for which one kernel appends and attends
Array = amdattn.DeviceArray


@dataclass(frozen=True)
class Scratch:
    """Memory between launches, (rows, columns) each; passes of fewer rows use the first ones."""

    normed: Array
    qkv: Array
    attended: Array
    inner: Array
    eights: Eights | None  # what goes into products of weights in 8 bits


class Forward:
    """A pass over `length` new tokens of each of `batch` sequences.

    All of it is planned here, and runs allocate nothing if `is_captured`: scratch memory of plans
    is kept then, else each run takes it from amdattn's cache.
    """

    @staticmethod
    def scratch(config: Config, weights: Weights, rows: int) -> Scratch:
        """Memory for passes of up to so many rows."""
        c = config
        of_q, of_qkv = c.heads * c.head_dim, (c.heads + 2 * c.heads_kv) * c.head_dim

        def made(columns: int) -> Array:
            return amdattn.empty((rows, columns), weights.dtype)

        eights = weights.eight_bits
        return Scratch(
            normed=made(c.hidden),
            qkv=made(of_qkv),
            attended=made(of_q),
            inner=made(c.inner),
            eights=None if eights is None else Eights(c, eights, rows),
        )

    def __init__(self, model: Decoder, batch: int, length: int, *, is_captured: bool) -> None:
        c, rows, scratch = model.config, batch * length, model.scratch
        self._model, self.batch, self._rows = model, batch, rows
        self._h = model.h[:rows]
        self._normed, self._qkv, self._inner = (
            x[:rows] for x in (scratch.normed, scratch.qkv, scratch.inner)
        )
        heads = c.heads + 2 * c.heads_kv
        qkv = self._qkv.reshape((batch, length, heads, c.head_dim))
        self._new = (
            qkv[:, :, : c.heads],
            qkv[:, :, c.heads : c.heads + c.heads_kv],
            qkv[:, :, c.heads + c.heads_kv :],
        )
        attended = scratch.attended[:rows]
        self._attended = attended
        self._out = attended.reshape((batch, length, c.heads, c.head_dim))
        # Of a prompt only the last row makes logits.
        self._first_logit = rows - batch
        self._attention = {w: self._attention_plan(batch, length, w) for w in set(c.windows)}
        self._turn = self._turn_plan(batch, length) if c.qk_norm else None
        self._norms = {n: self._norm_plan(n, c.hidden) for n in (rows, batch)}
        self._embedding = amdattn.plan_embedding(
            *(rows, c.hidden, c.vocabulary),
            dtype=model.weights.dtype.name,
            device=amdattn.device_props(),
        )
        self._sample = model.sampling.plan(batch, c.vocabulary, model.context)
        self._norms_rows = model.weights.folded and rows <= _NORMED_BY_PRODUCTS
        self._products = Products(c, model.weights, rows, batch, scratch.eights, self._norms_rows)
        self._workspaces: dict[int, Array] = {}
        if is_captured:
            # Kernels of a stream run one after the other: one workspace of a plan does for all.
            self._products.keep_workspaces()
            for plan in (*self._attention.values(), self._sample):
                if plan.workspace.total_bytes:
                    self._workspaces[id(plan)] = plan.new_workspace()

    @property
    def launches(self) -> int:
        """Kernels of a run, with logits and tokens."""
        products, c = self._products, self._model.config
        of_layer = products.launches
        if not self._norms_rows:
            of_layer += 2 * len(self._norms[self._rows].launches)
        if self._turn is not None:
            of_layer += len(self._turn.launches)
        attention = sum(len(self._attention[window].launches) for window in c.windows)
        last = len(self._norms[self.batch].launches) + products.launches_of_logits
        last += len(self._embedding.launches) + len(self._sample.launches)
        return c.layers * of_layer + attention + last

    def run(self, stream: Any, with_logits: bool = True) -> None:
        """From `ids`, behind the keys that the cache has, to `logits` and `tokens`."""
        model, h, normed, product = self._model, self._h, self._normed, self._products.run
        ids = model.ids[: self._rows]
        self._embedding.run(model.weights.embedding, ids, out=h, stream=stream)
        norm, windows = self._norms[self._rows], model.config.windows
        for i, (layer, window) in enumerate(zip(model.weights.layers, windows, strict=True)):
            before = h if self._norms_rows else normed
            if not self._norms_rows:
                norm.run(h, layer.attention_norm, out=normed, stream=stream)
            product("qkv", before, layer.qkv, self._qkv, stream)
            self._attend(i, layer, window, stream)
            # The sum of what goes in and what half a layer gives is rounded once, and in place.
            product("o", self._attended, layer.o, h, stream, residual=h)
            if not self._norms_rows:
                norm.run(h, layer.mlp_norm, out=normed, stream=stream)
            product("gate_up", before, layer.gate_up, self._inner, stream)
            product("down", self._inner, layer.down, h, stream, residual=h)
        if with_logits:
            last, normed = h[self._first_logit :], normed[: self.batch]
            self._norms[self.batch].run(last, model.weights.norm, out=normed, stream=stream)
            logits = model.logits[: self.batch]
            self._products.run_logits(normed, model.weights.head, logits, stream)
            state = model.state[: self.batch] if model.sampling.draws else None
            tokens = model.tokens[: self.batch]
            so_far = model.history[: self.batch] if model.sampling.penalises else None
            self._sample.run(
                *(logits, so_far, state),
                out=tokens,
                workspace=self._workspaces.get(id(self._sample)),
                stream=stream,
            )

    def _attend(self, i: int, layer: Layer, window: int | None, stream: Any) -> None:
        model, plan, before = self._model, self._attention[window], len(self._model.shared)
        q, k, v = self._new
        names = "k_prefix", "v_prefix"
        prefix = dict(zip(names, model.prefixes[i], strict=True)) if before else {}
        lengths = model.lengths[: self.batch]
        angles = [x[before : before + model.room] for x in (model.cos, model.sin)]
        if self._turn is None:
            prefix |= dict(zip(("rotary_cos", "rotary_sin"), angles, strict=True))
        else:
            weights = {"q_norm_weight": layer.q_norm, "k_norm_weight": layer.k_norm}
            of_whom: dict[str, Any] = {"seqlen_offsets": lengths, "out": q, "k_out": k, **weights}
            self._turn.run(q, *angles, k, **of_whom, stream=stream)
        plan.run(
            *(q, *model.caches[i], k, v),
            **prefix,
            cache_seqlens=lengths,
            block_table=model.tables[: self.batch],
            out=self._out,
            workspace=self._workspaces.get(id(plan)),
            stream=stream,
        )

    def _attention_plan(self, batch: int, length: int, window: int | None) -> Any:
        model, c = self._model, self._model.config
        plan: Any = amdattn.plan_decode if length <= FEW else amdattn.plan_prefill
        options: dict[str, Any] = {}
        if window is not None:
            options["window_size"] = (window - 1, 0)
        if model.shared:
            plan, options["prefix_len"] = amdattn.plan_cascade, len(model.shared)
        if not c.qk_norm:
            options |= {"rotary_dim": c.head_dim, "rotary_positions": model.room}
            options |= {"rotary_interleaved": False, "rotary_dtype": "float32"}
        return plan(
            *(batch, length, model.room, c.heads, c.heads_kv, c.head_dim),
            **options,
            device=amdattn.device_props(),
            dtype=model.weights.dtype.name,
            causal=True,
            seqlen_new=length,
            page_size=model.page,
            num_pages=model.pages,
            cache_seqlens=True,
        )

    def _turn_plan(self, batch: int, length: int) -> Any:
        """Of heads that are normalised: with q and k where they lie, before they are appended."""
        model, c = self._model, self._model.config
        return amdattn.plan_rotary(
            *(batch, length, c.heads, c.head_dim),
            heads_k=c.heads_kv,
            table_rows=model.room,
            dtype=model.weights.dtype.name,
            table_dtype="float32",
            positions="offsets",
            in_place=True,
            q_norm=True,
            k_norm=True,
            norm_eps=c.epsilon,
            device=amdattn.device_props(),
        )

    def _norm_plan(self, rows: int, columns: int) -> Any:
        device, c = amdattn.device_props(), self._model.config
        dtype = self._model.weights.dtype.name
        return amdattn.plan_rms_norm(rows, columns, eps=c.epsilon, dtype=dtype, device=device)
