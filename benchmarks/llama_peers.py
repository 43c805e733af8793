"""Prints a step of a decoder beside the same step made of other people's kernels, modelled.

    python -m benchmarks.llama_peers [--model llama3-8b] [--batch B ...] [--context KEYS]
                                     [--aiter DIR] [--json FILE]

Ours is `amdattn bench llama`. Theirs has nine launches in each layer: Triton's norm with the sum
before it, products by the fastest tile of Triton and of AITER, and AITER's assembled paged
attention (--aiter is a checkout of ROCm/aiter; without it, attention is ours). Our kernels stand in
for the operations that neither has: rotary, the append to the cache, and the gate; the append
counts as a launch only. Each launch of theirs is modelled alone, with cold caches.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

import amdattn
from amdattn import virtual
from amdattn.bench import decoder, decoder_parts
from amdattn.bench.clocks import clocks
from amdattn.bench.kernels import Functions
from amdattn.cli.output import progress_bar, stdout
from amdattn.device import runtime
from amdattn.tuning import runner
from benchmarks import rms_norm
from benchmarks.decode_shapes import Shape
from benchmarks.gemm_peers import Aiter, Operands, Triton, padded_n
from benchmarks.peers import aiter_pa
from benchmarks.peers.paged import modelled_us

_WIDEST_TILE, _MOST_PARTS, _MOST_TILES = 256, 16, 1 << 14


class Peers:
    """Times of launches of other people, each the fastest that there is."""

    def __init__(self, model: decoder_parts.Model, aiter: Path | None) -> None:
        self._model, self._props = model, amdattn.device_props()
        self._mhz = round(1000 * self._props.peak_clock_ghz)
        self._functions = Functions()
        self._triton = Triton(self._props)
        self._norm = rms_norm.Triton(decoder_parts.DTYPE, decoder_parts.DTYPE)
        self._aiter = None if aiter is None else Aiter(aiter, self._props)
        self._paged = [] if aiter is None else aiter_pa.objects(aiter, self._props.arch)

    def _us(self, run: Callable[[], object], workgroups: int = 0) -> float:
        launches = virtual.profiled(run, clock_mhz=self._mhz, simulated_workgroups=workgroups)
        return sum(launch.cycles for launch in launches) / self._mhz

    def product(self, m: int, n: int, k: int) -> tuple[str, float]:
        """The fastest tile of any."""
        rows = padded_n(n, _WIDEST_TILE, 1)
        a, b, out = (
            amdattn.empty(shape, decoder_parts.DTYPE) for shape in ((m, k), (rows, k), (m, rows))
        )
        bias, parts = (amdattn.empty(shape, "float32") for shape in ((rows,), (_MOST_PARTS * m, n)))
        zeros = amdattn.empty((_MOST_TILES,), "int32")
        at = Operands(*(one.address for one in (a, b, out, bias, zeros, parts)))
        found = []
        for name, peer in (("Triton", self._triton), ("AITER", self._aiter)):
            for attempt in () if peer is None else peer(m, n, k, at):
                runtime.get().clear(zeros.address, 4 * _MOST_TILES, 0)

                def run(launches: Any = attempt.launches) -> None:
                    for launch in launches:
                        launch.enqueue(self._functions)

                found.append((self._us(run, attempt.workgroups), f"{name} {attempt.name}"))
        us, name = min(found)
        return name, us

    def norm(self, rows: int) -> tuple[str, float]:
        """Triton's, of a sum."""
        shape = rms_norm.Shape(rows, self._model.hidden, True)
        launch = self._norm.launch(shape, rms_norm.Memory([shape]).operands(shape))
        return "Triton", self._us(lambda: launch.enqueue(self._functions))

    def attention(self, batch: int, context: int) -> tuple[str, float]:
        """AITER's, or ours without a checkout of it."""
        model = self._model
        shape = Shape(batch, context, model.heads, model.heads_kv)
        found = [
            (modelled_us(attempt, shape, self._functions, self._mhz), f"AITER {attempt.name}")
            for attempt in aiter_pa.attempts(self._paged, shape, decoder_parts.DTYPE)
        ]
        us, name = min(found)
        return name, us

    def ours(self, plan: Any) -> tuple[str, float]:
        """Of a plan of ours where they have no object."""
        return "ours", self._us(runner(plan))

    def parts(self, batch: int, context: int, attention_of_ours: float) -> dict[str, Any]:
        """Of a step: times, name and us."""
        model, props, layers = self._model, self._props, self._model.layers
        rotary = amdattn.plan_rotary(
            *(batch, 1, model.heads, model.head_dim),
            device=props,
            heads_k=model.heads_kv,
            dtype=decoder_parts.DTYPE,
        )
        gate = amdattn.plan_gated_activation(batch, model.inner, device=props)
        attention = ("ours", attention_of_ours)
        if self._paged:
            attention = self.attention(batch, context)
        norm = self.norm(batch)
        return {
            "norm, sum": (2 * layers + 1, *norm),
            **{
                name: (layers, *self.product(batch, *sizes))
                for name, sizes in model.products.items()
            },
            "rotary": (layers, *self.ours(rotary)),
            "append": (layers, "", 0.0),
            "attention": (layers, *attention),
            "gate": (layers, *self.ours(gate)),
            "head": (1, *self.product(batch, model.vocabulary, model.hidden)),
        }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=decoder_parts.MODELS, default="llama3-8b")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter")
    parser.add_argument("--json", type=Path, help="write every part here")
    options = parser.parse_args()
    props = amdattn.device_props()
    peers = Peers(decoder_parts.MODELS[options.model], options.aiter)
    launch_us, rows = clocks(props).launch_us, []
    table = Table(title=f"{options.model}, {props.name}, modelled at {props.peak_clock_ghz} GHz")
    for name in ("batch", "floor, us", "ours", "of floor", "launches", "theirs", "their launches"):
        table.add_column(name, justify="right")
    table.add_column("theirs / ours", justify="right")
    with progress_bar() as progress:
        for batch in progress.track(options.batch):
            ours = decoder.timed(options.model, batch, 1, options.context)
            of_attention = next(part.us for part in ours.parts if part.name == "attention")
            theirs = peers.parts(batch, options.context, of_attention)
            same = sum(p.us + launch_us for p in ours.parts if p.name in ("embedding", "token"))
            launches = sum(times for times, *_ in theirs.values()) + 2
            us = same + sum(times * (us + launch_us) for times, _, us in theirs.values())
            table.add_row(
                *(str(batch), f"{ours.floor_us:,.0f}", f"{ours.us:,.0f}", f"{ours.of_floor:.3f}"),
                *(str(ours.launches), f"{us:,.0f}", str(launches), f"{us / ours.us:.3f}"),
            )
            rows.append(
                {"batch": batch, "us": ours.us, "of_floor": ours.of_floor, "theirs_us": us}
                | {"theirs": theirs, "ours": {p.name: p.us for p in ours.parts}}
            )
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
    stdout.print(table)


if __name__ == "__main__":
    main()
