"""The decoder on the device: prompts in chunks, then steps that replay one graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from hip import hip  # that of the device that amdattn has bound
from model import BF16, EPSILON, Sizes, Weights, angles

import amdattn

PAGE = 16  # keys
CHUNK = 32  # rows of a prompt at a time
FEW = 16  # rows of which one kernel appends and attends


def call(function: Callable[..., Any], *args: Any) -> Any:
    """A function of hip-python; its results without the error code, which must be 0."""
    error, *results = function(*args)
    if int(error):
        raise RuntimeError(f"{function.__name__}: {error.name}")
    return results[0] if results else None


class Rows:
    """Everything that a pass over so many rows of one sequence needs: memory, plans, launches."""

    def __init__(self, model: Decoder, rows: int) -> None:
        s, device = model.sizes, amdattn.device_props()
        of_q, of_kv = s.columns
        self._model = model
        self.h = amdattn.empty((rows, s.hidden))  # what goes in, and what layers add to
        self._middle = amdattn.empty((rows, s.hidden))  # the same behind attention
        self._next = amdattn.empty((rows, s.hidden))
        self._normed = amdattn.empty((rows, s.hidden))
        self._qkv = amdattn.empty((rows, of_q + 2 * of_kv))
        q, k, v = (
            self._qkv[:, first:last].reshape((1, rows, -1, s.head_dim))
            for first, last in ((0, of_q), (of_q, of_q + of_kv), (of_q + of_kv, None))
        )
        self._new = q, k, v
        self._out = amdattn.empty((1, rows, s.heads, s.head_dim))
        self._inner = amdattn.empty((rows, s.inner))
        self.logits = amdattn.empty((rows, s.vocabulary), "float32")
        plan = amdattn.plan_decode if rows <= FEW else amdattn.plan_prefill
        self._attention = plan(
            *(1, rows, model.room, s.heads, s.heads_kv, s.head_dim),
            device=device,
            causal=True,
            seqlen_new=rows,
            page_size=PAGE,
            num_pages=model.room // PAGE,
            rotary_dim=s.head_dim,
            rotary_positions=model.room + CHUNK,
            rotary_interleaved=False,
            cache_seqlens=True,
        )
        self._norm = amdattn.plan_rms_norm(rows, s.hidden, eps=EPSILON, device=device)
        self._added = amdattn.plan_rms_norm(
            rows, s.hidden, eps=EPSILON, residual=True, device=device
        )
        sizes = {"qkv": (of_q + 2 * of_kv, s.hidden), "o": (s.hidden, of_q)}
        sizes |= {"gate_up": (s.inner, s.hidden), "down": (s.hidden, s.inner)}
        options: dict[str, dict[str, Any]] = {"gate_up": {"activation": "silu_and_mul"}}
        options["logits"] = {"out_dtype": "float32"}
        self._products = {
            name: amdattn.plan_gemm(rows, *nk, device=device, **options.get(name, {}))
            for name, nk in {**sizes, "logits": (s.vocabulary, s.hidden)}.items()
        }
        plans = {**self._products, "attention": self._attention}
        # Kernels of a stream run one after the other: what one has left is the next one's.
        self._workspaces = {
            name: plan.new_workspace() for name, plan in plans.items() if plan.workspace.total_bytes
        }

    def run(self, stream: int) -> None:
        """From `h`, behind the keys that the cache has, to `logits`. Allocates nothing."""
        model, x = self._model, self.h
        self._norm.run(x, model.layers[0]["attention_norm"], out=self._normed, stream=stream)
        for i, (layer, cache) in enumerate(zip(model.layers, model.caches, strict=True)):
            self._product("qkv", self._normed, layer["qkv"], self._qkv, stream)
            q, k, v = self._new
            self._attention.run(
                *(q, *cache, k, v),
                rotary_cos=model.cos,
                rotary_sin=model.sin,
                cache_seqlens=model.length,
                block_table=model.table,
                out=self._out,
                workspace=self._workspaces.get("attention"),
                stream=stream,
            )
            attended = self._out.reshape((x.shape[0], -1))
            self._product("o", attended, layer["o"], self._next, stream)
            self._add(x, layer["mlp_norm"], self._middle, stream)
            self._product("gate_up", self._normed, layer["gate_up"], self._inner, stream)
            self._product("down", self._inner, layer["down"], self._next, stream)
            is_last = i + 1 == len(model.layers)
            norm = model.norm if is_last else model.layers[i + 1]["attention_norm"]
            self._add(self._middle, norm, x, stream)
        self._product("logits", self._normed, model.head, self.logits, stream)

    def _product(self, name: str, a: Any, b: Any, out: Any, stream: int) -> None:
        workspace = self._workspaces.get(name)
        self._products[name].run(a, b, out=out, workspace=workspace, stream=stream)

    def _add(self, h: Any, weight: Any, made: Any, stream: int) -> None:
        """What half a layer gives, added to what went in, and the sum's norm."""
        results = {"out": self._normed, "residual_out": made}
        self._added.run(self._next, weight, h, **results, stream=stream)


class Decoder:
    """One sequence. Pages of its cache lie anywhere in it, as those of an allocator do."""

    def __init__(self, weights: Weights, sizes: Sizes, keys: int) -> None:
        self.sizes, self.room = sizes, -(-keys // PAGE) * PAGE
        room = self.room
        self.layers = [
            {field.name: amdattn.asarray(getattr(layer, field.name)) for field in fields(layer)}
            for layer in weights.layers
        ]
        self.norm, self.head = map(amdattn.asarray, (weights.norm, weights.head))
        self.cos, self.sin = map(amdattn.asarray, angles(sizes, room + CHUNK))
        pages = np.random.default_rng(0).permutation(room // PAGE).astype(np.int32)
        self.table = amdattn.asarray(pages[None])
        self.length = amdattn.asarray(np.zeros(1, np.int32))
        shape = (room // PAGE, PAGE, sizes.heads_kv, sizes.head_dim)
        self.caches = [
            tuple(amdattn.asarray(np.zeros(shape, BF16)) for _ in range(2)) for _ in self.layers
        ]
        self._host_embedding = weights.embedding
        self._keys = 0
        self._stream = call(hip.hipStreamCreate)
        self._step = Rows(self, 1)
        self._set(self._step, [0])
        self._graph = self._captured(self._step)

    def prompt(self, ids: list[int]) -> np.ndarray:
        """Take in the ids in chunks; the logits of each."""
        found = []
        for first in range(0, len(ids), CHUNK):
            chunk = ids[first : first + CHUNK]
            rows = Rows(self, len(chunk))
            self._set(rows, chunk)
            rows.run(self._stream)
            call(hip.hipStreamSynchronize, self._stream)
            found.append(rows.logits.numpy())
            self._keys += len(chunk)
        return np.concatenate(found)

    def step(self, token: int) -> np.ndarray:
        """The logits behind one more id. Nothing is planned, allocated or launched singly."""
        self._set(self._step, [token])
        call(hip.hipGraphLaunch, self._graph, self._stream)
        call(hip.hipStreamSynchronize, self._stream)
        self._keys += 1
        return self._step.logits.numpy()[0]

    def _set(self, rows: Rows, ids: list[int]) -> None:
        """What differs from pass to pass: rows of the embedding, and how many keys there are."""
        for array, host in (
            (rows.h, self._host_embedding[ids]),
            (self.length, np.full(1, self._keys, np.int32)),
        ):
            kind = hip.hipMemcpyKind.hipMemcpyHostToDevice
            call(hip.hipMemcpy, array.address, host.ctypes.data, host.nbytes, kind)

    def _captured(self, rows: Rows) -> Any:
        """A pass as a graph. Outside of one first, which loads kernels; its key is written over."""
        rows.run(self._stream)
        call(hip.hipStreamSynchronize, self._stream)
        mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
        call(hip.hipStreamBeginCapture, self._stream, mode)
        rows.run(self._stream)
        graph = call(hip.hipStreamEndCapture, self._stream)
        return call(hip.hipGraphInstantiateWithFlags, graph, 0)
