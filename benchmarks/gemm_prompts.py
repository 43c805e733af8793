"""Prints the products of models on prompts: modelled clk of whole launches beside the best peer's.

    python -m benchmarks.gemm_prompts [--models NAME ...] [--tokens N ...] [--dtype float16]
                                      [--aiter CHECKOUT] [--flydsl DIR] [--in-full FLOP]
                                      [--reading NAME] [--json FILE [--resume]]

24 products of the layers of Llama 8B and 70B and Qwen 32B, of 512 to 8192 tokens. Peers: Triton's
kernel of `triton_gemm` with the best of twelve tiles, and AITER's objects: its tiles of 256 x 256,
and up to 512 rows and 10^11 FLOP those that are split along k. The best way of a peer is found with
512 and 1024 elements of k; for more than 2^23 results with 256 and 512 and two workgroups for each
CU, among tiles of at least 128 x 128. It is then run in full, or, like ours, beyond `--in-full`
(1.5 TFLOP), extrapolated from 1024 and 2048, for more than 2^24 results from 512 and 1024. FlyDSL's
split-K kernel is run in full in every way that `flydsl_hgemm.py --rows` compiled for the product;
beyond `--in-full` its ways are compared and extrapolated like the others', which takes kernels for
the shorter k, too. A launch is not counted on either side, and no time depends on what the operands
hold. `--resume` keeps the products that the file already has.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import amdattn
from amdattn.bench.kernels import Functions, Launch
from amdattn.cli.output import progress_bar
from amdattn.device import manifest, runtime
from amdattn.ops.gemm import planning
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem
from benchmarks.gemm_many_rows import MOST_TILES, modelled
from benchmarks.gemm_peers import (
    FLYDSL_TILES_OF_MANY_ROWS,
    TRITON_TILES_OF_MANY_ROWS,
    XCDS,
    Aiter,
    Attempt,
    FlyDsl,
    Operands,
    Triton,
    padded_n,
)

# Tokens, and n x k of the projections to q, k and v, from attention, up with the gate, and down.
MODELS = {
    "llama3-8b": (
        (512, 2048, 8192),
        ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    ),
    "llama3-70b": (
        (512, 2048),
        ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    ),
    "qwen3-32b": ((1024,), ((10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600))),
}
_PICKED_AT, _EXTRAPOLATED_FROM = (512, 1024), (1024, 2048)  # elements of k
_MANY, _PICKED_AT_OF_MANY, _PICKED_WORKGROUPS = 2**23, (256, 512), 2  # results; workgroups of a CU
_MOST, _EXTRAPOLATED_FROM_OF_MOST = 2**24, (512, 1024)
_WIDEST_TILE = 256  # of AITER
_FEW_ROWS, _FLOP_OF_FEW = 512, 1e11  # up to which AITER's tiles for few rows are tried, too

ClkOfK = Callable[[int], float]
# Of a shape, and operands' addresses and type.
Ways = Callable[[int, int, int, Operands, str], Iterator[Attempt]]
Splits = Callable[[int, int, int, Operands], Iterator[Attempt]]


class Row(NamedTuple):
    """One product."""

    model: str
    m: int
    n: int
    k: int
    kernel: str
    clk: float
    of_the_limit: float
    peers: dict[str, float]  # the ways that were run to the end, and their clk

    @property
    def peer(self) -> str:
        """The fastest of them."""
        return min(self.peers, key=self.peers.__getitem__)

    @property
    def peer_clk(self) -> float:
        """Its clk."""
        return self.peers[self.peer]


def _at(lengths: tuple[int, int], k: int, clk_of: ClkOfK) -> float:
    """The line through two lengths of k."""
    low, high = (clk_of(length) for length in lengths)
    return low + (high - low) * (k - lengths[0]) / (lengths[1] - lengths[0])


class Shape:
    """The arrays of one product, and what runs on them."""

    def __init__(self, m: int, n: int, k: int, options: argparse.Namespace) -> None:
        self._m, self._n, self._k = m, n, k
        self._flop = 2 * m * n * k
        self._options, self._props = options, runtime.get().props
        self._a, self._b = (amdattn.empty(size, options.dtype) for size in ((m, k), (n, k)))
        self._out = amdattn.empty((m, n), options.dtype)
        self._zeros = amdattn.empty((MOST_TILES,), "int32")
        self._functions = Functions()

    def ours(self) -> tuple[str, float]:
        """The planned kernel and its clk."""
        problem = GemmProblem(self._m, self._n, self._k, self._options.dtype)
        kernel = planning.plan_gemm(problem, self._props, manifest.kernels()).launches[0].kernel

        def clk_of(k: int) -> int:
            shorter = GemmProblem(self._m, self._n, k, self._options.dtype)
            plan = GemmPlan.of(planning.plan_gemm(shorter, self._props, [kernel]))
            a, b = (amdattn.empty((rows, k), self._options.dtype) for rows in (self._m, self._n))
            return modelled(partial(plan.run, a, b, self._out), self._options.reading)

        return kernel.name, self._whole(clk_of)

    def peers(self) -> Iterator[tuple[str, float]]:
        """The best way of each peer."""
        triton, least = Triton(self._props), 128 if self._m * self._n > _MANY else 0
        tiles = [tile for tile in TRITON_TILES_OF_MANY_ROWS if min(tile[:2]) >= least]
        yield self._best_of("Triton", partial(triton.many_rows, tiles=tiles))
        if self._options.flydsl and self._options.dtype == "bfloat16":
            yield from self._of_flydsl()
        if not self._options.aiter:
            return
        aiter = Aiter(self._options.aiter, self._props)
        if any(True for _ in self._attempts(aiter.many_rows, self._k)):
            yield self._best_of("AITER", aiter.many_rows)
        if self._m <= _FEW_ROWS and self._flop <= _FLOP_OF_FEW:
            yield from self._in_full("AITER", aiter, padded_n(self._n, _WIDEST_TILE, 1))

    def _of_flydsl(self) -> Iterator[tuple[str, float]]:
        flydsl = FlyDsl(self._options.flydsl, self._props, FLYDSL_TILES_OF_MANY_ROWS)

        def ways(m: int, n: int, k: int, at: Operands, dtype: str) -> Iterator[Attempt]:
            return flydsl(m, n, k, at)

        if self._flop <= self._options.in_full:
            yield from self._in_full("FlyDSL", flydsl, self._n)
        elif any(True for _ in self._attempts(ways, self._k)):
            yield self._best_of("FlyDSL", ways)

    def _in_full(self, peer: str, ways: Splits, rows: int) -> Iterator[tuple[str, float]]:
        """The clk of the fullest XCD for every way to split k, with b padded to `rows` rows."""
        b, out = (
            amdattn.empty((r, c), self._options.dtype)
            for r, c in ((rows, self._k), (self._m, rows))
        )
        cleared = np.zeros(MOST_TILES, np.uint32)
        bias = amdattn.asarray(np.zeros(rows, np.float32))
        zeros = self._zeros.address
        at = Operands(self._a.address, b.address, out.address, bias.address, zeros, 0)
        for attempt in ways(self._m, self._n, self._k, at):
            runtime.get().upload(self._zeros.address, cleared.ctypes.data, cleared.nbytes)
            yield f"{peer} {attempt.name}", self._clk(attempt.launches[0], attempt.workgroups)

    def _operands(self) -> Operands:
        a, b, out = self._a.address, self._b.address, self._out.address
        return Operands(a, b, out, 0, self._zeros.address, 0)

    def _attempts(self, ways: Ways, k: int) -> Iterator[Attempt]:
        return ways(self._m, self._n, k, self._operands(), self._options.dtype)

    def _clk(self, launch: Launch, workgroups: int = 0) -> int:
        run = partial(launch.enqueue, self._functions)
        return modelled(run, self._options.reading, workgroups)

    def _best_of(self, peer: str, ways: Ways) -> tuple[str, float]:
        def launch(name: str, k: int) -> Launch:
            for attempt in self._attempts(ways, k):
                if attempt.name == name:
                    return attempt.launches[0]
            raise SystemExit(f"{peer} {name}: no kernel for k={k}, of {self._m} x {self._n}")

        def clk_of(name: str, k: int) -> int:
            return self._clk(launch(name, k))

        def sampled_clk_of(name: str, k: int) -> float:
            """Of all workgroups, as the first ones are."""
            one, cus = launch(name, k), self._props.num_cus // XCDS
            share = math.ceil(math.prod(one.grid) / XCDS)
            some = min(share, _PICKED_WORKGROUPS * cus)
            return self._clk(one, some) * share / some

        many = self._m * self._n > _MANY
        lengths, measured = (_PICKED_AT_OF_MANY, sampled_clk_of) if many else (_PICKED_AT, clk_of)
        names = [one.name for one in self._attempts(ways, self._k)]
        _, name = min((_at(lengths, self._k, partial(measured, one)), one) for one in names)
        return f"{peer} {name}", self._whole(partial(clk_of, name))

    def _whole(self, clk_of: ClkOfK) -> float:
        """In full, or extrapolated."""
        if self._flop <= self._options.in_full:
            return clk_of(self._k)
        most = self._m * self._n > _MOST
        return _at(_EXTRAPOLATED_FROM_OF_MOST if most else _EXTRAPOLATED_FROM, self._k, clk_of)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--tokens", nargs="*", type=int, help="default: all of each model")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    parser.add_argument("--reading", help="see docs/generated/readings.md")
    parser.add_argument("--aiter", type=Path, help="a checkout of AITER")
    parser.add_argument("--flydsl", type=Path, help="what flydsl_hgemm.py --rows compiled")
    parser.add_argument("--in-full", type=float, default=1.5e12, help="FLOP of the largest in full")
    parser.add_argument("--json", type=Path, help="write every row here")
    parser.add_argument("--resume", action="store_true", help="keep the rows of --json's file")
    options = parser.parse_args()
    if options.resume and not options.json:
        parser.error("--resume needs --json")
    props = runtime.get().props
    limit = props.num_cus * props.architecture.matrix_flops_per_clk
    shapes = [
        (model, m, n, k)
        for model in options.models
        for m in MODELS[model][0]
        if options.tokens is None or m in options.tokens
        for n, k in MODELS[model][1]
    ]
    found = []
    if options.resume and options.json.exists():
        found = [Row(**row) for row in json.loads(options.json.read_text())]
    done = {(row.m, row.n, row.k) for row in found}
    shapes = [shape for shape in shapes if shape[1:] not in done]
    with progress_bar() as progress:
        for model, m, n, k in progress.track(shapes):
            shape = Shape(m, n, k, options)
            kernel, clk = shape.ours()
            share = 2 * m * n * k / limit / clk
            row = Row(model, m, n, k, kernel, clk, share, dict(shape.peers()))
            found.append(row)
            progress.console.print(
                f"{m} x {n} x {k}: {kernel} {clk:,.0f}, {row.peer} {row.peer_clk:,.0f}"
            )
            if options.json:
                options.json.write_text(
                    json.dumps([row._asdict() for row in found], indent=1) + "\n"
                )
    table = Table(
        title=f"{props.name}, {options.dtype}, modelled at {props.sustained_clock_ghz} GHz"
    )
    for column in (
        "model",
        "m x n x k",
        "kernel",
        "clk",
        "of the limit",
        "best peer",
        "its clk",
        "/ ours",
    ):
        table.add_column(column, justify="left" if column in ("model", "kernel") else "right")
    for row in found:
        table.add_row(
            *(row.model, f"{row.m} x {row.n} x {row.k}", row.kernel, f"{row.clk:,.0f}"),
            *(f"{row.of_the_limit:.1%}", row.peer, f"{row.peer_clk:,.0f}"),
            f"{row.peer_clk / row.clk:.3f}",
        )
    Console(width=130).print(table)
    mean = math.exp(sum(math.log(row.peer_clk / row.clk) for row in found) / len(found))
    print(f"geometric mean {mean:.3f}, least {min(row.peer_clk / row.clk for row in found):.3f}")


if __name__ == "__main__":
    main()
