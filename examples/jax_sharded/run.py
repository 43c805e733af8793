"""One sequence over eight devices of the host: three methods, their errors, the bytes they move.

    python examples/jax_sharded/run.py

Bytes are what the device that receives most gets from others in one call: computed from shapes, and
counted in the program that XLA compiled.
"""

from __future__ import annotations

import os
import re
import sys

NUM_DEVICES = 8
os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    _flag = f"--xla_force_host_platform_device_count={NUM_DEVICES}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_flag}".strip()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import Mesh, PartitionSpec as P  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import amdattn.jax  # noqa: E402

ROWS = 64  # of each device
HEADS, KV_HEADS, HEAD_DIM = 8, 4, 64
DTYPE = jnp.float16  # which XLA moves as it is; bfloat16 becomes float32 in its programs for CPUs
ITEM = 2
# Half a spacing of float16, of its value: of a ring's steps, of results, of one device's results.
ALLOWED = 3 * 2.0**-11
WINDOW = 100  # keys before a query: those of its own device and the two before
CASES = {
    "none": {},
    "causal": {"causal": True},
    "causal, zig-zag": {"causal": True, "order": "zigzag"},
    f"causal, window {WINDOW}": {"causal": True, "window_size": (WINDOW, 0)},
}
_BITS = {"pred": 8, "s8": 8, "f16": 16, "bf16": 16, "f32": 32}


def bytes_of_shapes(method: str, mask: str) -> int:
    """What a device receives, by the formulae of docs/context-parallelism.md."""
    n, options = NUM_DEVICES, CASES[mask]
    q = o = ROWS * HEADS * HEAD_DIM * ITEM
    kv = 2 * ROWS * KV_HEADS * HEAD_DIM * ITEM
    if method == "ulysses":
        copies = max(1, n // KV_HEADS)
        return (q + copies * kv + o) * (n - 1) // n
    moved = (n - 1) * kv
    if method == "ring" and "window_size" in options:
        moved = -(-WINDOW // ROWS) * kv
    if options == {"causal": True}:  # there in zig-zag order and back
        moved += q + o + (kv if method == "ring" else 0)
    return moved


def bytes_of_program(text: str) -> int:
    """What the device that receives most gets from others, by an HLO program for one of them."""
    received = np.zeros(NUM_DEVICES, np.int64)
    for line in text.splitlines():
        found = re.search(
            r"= (.*?) (collective-permute|all-gather|all-to-all|all-reduce|reduce-scatter|"
            r"collective-broadcast|ragged-all-to-all)(-start)?\(",
            line,
        )
        if not found:
            continue
        shapes, kind, is_async = found.groups()
        size = sum(
            _BITS[dtype] // 8 * int(np.prod([int(side) for side in sides.split(",") if side]))
            for dtype, sides in re.findall(r"(\w+)\[([\d,]*)\]", shapes)
        )
        if is_async or kind not in ("collective-permute", "all-gather", "all-to-all"):
            raise ValueError(f"a collective that is not counted: {line.strip()[:200]}")
        if kind == "collective-permute":
            for source, target in re.findall(r"\{(\d+),(\d+)\}", line):
                received[int(target)] += size * (source != target)
        else:
            received += size * (NUM_DEVICES - 1) // NUM_DEVICES
    return int(received.max())


def main() -> int:
    """Compute, compare, print; the exit code."""
    mesh = Mesh(np.array(jax.devices()[:NUM_DEVICES]), ("cp",))
    rng = np.random.default_rng(0)
    seqlen = NUM_DEVICES * ROWS
    q, k, v = (
        jnp.asarray(rng.standard_normal((1, seqlen, heads, HEAD_DIM), np.float32), DTYPE)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    there = amdattn.jax.zigzag_order(seqlen, NUM_DEVICES)
    back = amdattn.jax.zigzag_order(seqlen, NUM_DEVICES, inverse=True)
    allowed = ALLOWED * float(jnp.abs(v).max())
    table = Table(title=f"{seqlen} rows over {NUM_DEVICES} devices, {HEADS}/{KV_HEADS} heads")
    for heading in ("mask", "method"):
        table.add_column(heading)
    for heading in ("largest error", "allowed", "bytes by shapes", "bytes by XLA", ""):
        table.add_column(heading, justify="right")
    good = True
    for mask, options in CASES.items():
        of_one = {name: value for name, value in options.items() if name != "order"}
        expected = amdattn.jax.flash_attn_func(q, k, v, **of_one)
        for method in ("ring", "all_gather", "ulysses"):

            def attention(q, k, v, method=method, options=options):
                return amdattn.jax.context_parallel_attention(q, k, v, "cp", method, **options)

            rows = P(None, "cp")
            function = jax.shard_map(attention, mesh=mesh, in_specs=rows, out_specs=rows)
            in_zigzag = "order" in options
            qkv = [x[:, there] if in_zigzag else x for x in (q, k, v)]
            program = jax.jit(function).lower(*qkv).compile()
            out = program(*qkv)
            out = out[:, back] if in_zigzag else out
            error = float(jnp.abs(out.astype(jnp.float32) - expected.astype(jnp.float32)).max())
            by_shapes, by_xla = bytes_of_shapes(method, mask), bytes_of_program(program.as_text())
            right = error <= allowed and by_shapes == by_xla
            good = good and right
            cells = (f"{error:.1e}", f"{allowed:.1e}", f"{by_shapes:,}", f"{by_xla:,}")
            table.add_row(mask, method, *cells, "ok" if right else "WRONG")
        table.add_section()
    Console().print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
