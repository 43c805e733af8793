"""AITER's backward from its own objects beside ours: loops in cycles, and at estimated clocks.

    AMDATTN_DEVICE=virtual:gfx942 python -m benchmarks.attention_backward_peers [--aiter DIR]
        [--reading NAME ... | all] [--sums 16 | 32]

DIR, or AMDATTN_AITER_DIR, is a checkout of https://github.com/ROCm/aiter. Everything is modelled,
no GPU: one workgroup alone on its CU, of ours as `attention_backward_loop` has it. AITER's has as
many rows as keys, of which it takes the first block, or under a causal mask the first and the last
one; two lengths. Outside is then half of what is beside the steps of both blocks. A clock is where
the power of all CUs in a loop meets the cap (`amdattn.energy`): an estimate, with what the loop has
of the L2 and nothing behind it, where blocks of keys of a head share rows. With --reading, cycles
only, of each one (docs/generated/readings.md). AITER's is its a16, which sums dQ in 16 bits, or
with --sums 32 its a32.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import amdattn
from amdattn.arch import readings
from amdattn.arch.architectures import architecture
from amdattn.arch.energies import ENERGIES, Energies, mi300x, mi355x
from amdattn.bench import run
from amdattn.bench.kernels import Functions
from amdattn.device.profiling import LaunchProfile
from amdattn.energy import Activity, Estimate, estimate, matrix_flops
from amdattn.ops.attention_backward.reference import Inputs
from benchmarks import attention_backward_loop as ours
from benchmarks.attention_backward_launches import (
    AITER,
    HIPKITTENS,
    STEP,
    Loop,
    composed,
    composed_aiter,
)
from benchmarks.peers.aiter_backward import BF16, CodeObject, lifetime

HEAD_DIMS = (128, 64)
BLOCKS = (6, 12)  # of keys, that AITER's rows are
RATED = (16, 16, 16, 8192)  # batch, heads of q and k, rows
# What the estimate of a device leaves open, as docs/studies/attention-bench-gfx950.md has it.
GUESSES: Mapping[str, Mapping[str, Energies]] = {
    "gfx942": {
        "as it is": ENERGIES["MI300X"],
        "nothing fitted": mi300x(large_tile=1.0, plain_valu=1.0),
    },
    "gfx950": {
        "as it is": ENERGIES["MI355X"],
        "GEMM at 1.5 GHz": mi355x(gemm_ghz=1.5),
        "GEMM at 1.75 GHz": mi355x(gemm_ghz=1.75),
        "32x32x16 draws 1.26": mi355x(large_tile=1.26),
        "vector unit draws twice": mi355x(plain_valu=1.0),
    },
}


@dataclass(frozen=True)
class Found:
    """A loop, and what all CUs do in STEP rows of it."""

    loop: Loop
    activity: Activity

    def at(self, energies: Energies) -> Estimate:
        """Its clock."""
        return estimate(self.activity, energies)

    def tflops(self, ghz: float) -> float:
        """Of the five products, of all CUs."""
        props = amdattn.device_props()
        of_cu = self.loop.limit * architecture(props.arch).matrix_flops_per_clk
        return of_cu * props.num_cus * ghz / self.loop.clk / 1e3


def found_of(
    name: str, keys: int, columns: int, rows: tuple[int, int], at: list[tuple[int, LaunchProfile]]
) -> Found:
    """Of two lengths; `outside` of all that is beside as many steps as the first block has."""
    props = amdattn.device_props()
    steps = (rows[1] - rows[0]) / STEP
    (short, less), (long, more) = at
    clk = (long - short) / steps
    flops = [matrix_flops(profile) for profile in (less, more)]
    activity = Activity.counted(
        clk,
        {shape: (flops[1][shape] - flops[0].get(shape, 0)) / steps for shape in flops[1]},
        {unit: (more.clk[unit] - less.clk[unit]) / steps for unit in more.clk},
        {
            level: 0.0 if level.startswith("hbm") else (more.bytes[level] - of) / steps
            for level, of in less.bytes.items()
        },
        props.num_cus,
    )
    limit = 10 * keys * STEP * columns / architecture(props.arch).matrix_flops_per_clk
    return Found(Loop(name, keys, clk, limit, short - rows[0] / STEP * clk), activity)


def of_aiter(
    directory: Path,
    head_dim: int,
    causal: bool,
    functions: Functions,
    round_mode: str = "rtz",
    sums: int = 16,
) -> Found:
    """Of its objects; under a mask `outside` is half of a pair's, beside the steps of both."""
    arch = amdattn.device_props().arch
    kernel = CodeObject.of(directory, arch, head_dim, causal, round_mode, sums)
    rows = (BLOCKS[0] * kernel.keys, BLOCKS[1] * kernel.keys)
    at = [lifetime(kernel, numbers(seqlen, head_dim), functions) for seqlen in rows]
    name = kernel.symbol.removeprefix("_ZN5aiter").strip("0123456789").removesuffix("E")
    found = found_of(name, kernel.keys, head_dim, rows, at)
    if not causal:
        return found
    loop = found.loop
    both = loop.outside - loop.keys / STEP * loop.clk
    return Found(Loop(name, loop.keys, loop.clk, loop.limit, both / 2), found.activity)


def numbers(seqlen: int, columns: int) -> Inputs:
    """One head of normal ones: no time depends on them."""
    rng = np.random.default_rng(1)
    q, k, v, dout, out = (
        rng.standard_normal((1, seqlen, 1, columns), np.float32).astype(BF16) for _ in range(5)
    )
    lse = np.full((1, 1, seqlen), np.log(seqlen) + 0.5, np.float32)
    return Inputs(dout, q, k, v, out, lse)


def of_ours(head_dim: int, causal: bool) -> Found:
    """Of the kernel that a plan takes."""
    options = ours.CAUSAL if causal else {}
    loop = ours.measure(head_dim, head_dim, options, "bf16", 1.0)
    at = [
        ours.lifetime(rows, loop.keys, head_dim, head_dim, "bf16", 1.0, options)
        for rows in ours.ROWS
    ]
    return found_of(loop.kernel, loop.keys, head_dim, ours.ROWS, at)


def print_loops(pairs: Mapping[tuple[int, bool], tuple[Found, Found]], reading: str) -> None:
    """Rows of the table of cycles."""
    for (head_dim, causal), both in pairs.items():
        for one in both:
            loop, own = one.loop, both[0].loop
            ratio = loop.clk / loop.keys * own.keys / own.clk
            print(
                f"| {reading} | {head_dim} | {'causal' if causal else ''} | `{loop.kernel}` "
                f"| {loop.keys} | {loop.clk:.0f} | {100 * loop.use:.1f} % | {loop.outside:.0f} "
                f"| {ratio:.3f} |",
                flush=True,
            )


def print_estimates(pairs: Mapping[tuple[int, bool], tuple[Found, Found]]) -> None:
    """Of loops without a mask, by what is guessed."""
    props = amdattn.device_props()
    sustained = props.sustained_clock_ghz
    for guess, energies in GUESSES[props.arch].items():
        print(f"\n{guess}\n")
        print(
            f"| columns | kernel | TFLOP/s at {sustained:g} GHz | GHz est. | TFLOP/s est. "
            "| / ours, clk | / ours, est. time | W: matrix, vector, LDS, L1, L2, rest |"
        )
        print("|--:|---|--:|--:|--:|--:|--:|---|")
        for (head_dim, causal), both in pairs.items():
            for one in () if causal else both:
                at, own = one.at(energies), both[0]
                rates = one.tflops(at.clock_ghz), own.tflops(own.at(energies).clock_ghz)
                in_clk = own.tflops(1.0) / one.tflops(1.0)
                watts = [at.watts[part] for part in ("matrix", "vector", "lds", "l1", "l2")]
                watts.append(sum(at.watts.values()) - sum(watts))
                print(
                    f"| {head_dim} | `{one.loop.kernel}` | {one.tflops(sustained):.0f} "
                    f"| {at.clock_ghz:.2f} | {rates[0]:.0f} | {in_clk:.3f} "
                    f"| {rates[1] / rates[0]:.3f} | {', '.join(f'{w:.0f}' for w in watts)} |"
                )


def print_rates(pairs: Mapping[tuple[int, bool], tuple[Found, Found]]) -> None:
    """Of main launches of one shape, composed, 128 columns without a mask."""
    props = amdattn.device_props()
    own = pairs[128, False][0].loop
    batch, heads, _, seqlen = RATED
    loops = {
        own.kernel: composed(own, RATED, props),
        AITER[16, props.arch, 128, False].kernel: composed_aiter(RATED, 128, props),
    }
    if props.arch == "gfx950":
        loops[HIPKITTENS.kernel] = composed(HIPKITTENS, RATED, props)
    flops, ghz = 10 * batch * heads * seqlen**2 * 128, props.sustained_clock_ghz
    print(f"\n{RATED}\n\n| kernel | Mclk | TFLOP/s at {ghz:g} GHz |")
    print("|---|--:|--:|")
    for kernel, clk in loops.items():
        print(f"| `{kernel}` | {clk / 1e6:.3f} | {flops / clk * ghz / 1e3:.0f} |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, default=os.environ.get("AMDATTN_AITER_DIR"))
    parser.add_argument("--reading", nargs="+", metavar="NAME", help="or all")
    parser.add_argument("--sums", type=int, choices=(16, 32), default=16, help="bits of AITER's dQ")
    arguments = parser.parse_args()
    if arguments.aiter is None:
        parser.error("--aiter or AMDATTN_AITER_DIR must name a checkout of ROCm/aiter")
    directory, functions = Path(arguments.aiter), Functions()
    print("| reading | columns | mask | kernel | keys | clk | of the limit | outside | / ours |")
    print("|---|--:|---|---|--:|--:|--:|--:|--:|")
    for name in readings.chosen(arguments.reading, amdattn.device_props().arch):
        with run.reading(name):
            pairs = {
                (head_dim, causal): (
                    of_ours(head_dim, causal),
                    of_aiter(directory, head_dim, causal, functions, sums=arguments.sums),
                )
                for head_dim in HEAD_DIMS
                for causal in (False, True)
            }
        print_loops(pairs, name)
    if not arguments.reading:
        print_estimates(pairs)
        print_rates(pairs)


if __name__ == "__main__":
    main()
