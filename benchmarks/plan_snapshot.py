"""Plans of random problems, to compare before and after a change that must not change them.

    python benchmarks/plan_snapshot.py --number 3000 --write before.json
    python benchmarks/plan_snapshot.py --number 3000 --against before.json [--renames renames.json]

Problems of every operation, on every known device and partition: usual ones, odd ones and such as
are refused. A plan stands with its kernels, grids, arguments, workspace and reasons, a refusal with
its error. `--renames` maps texts of the former snapshot to those that stand for them now. The exit
code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

import amdattn
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS

Call = dict[str, Any]
_DEVICES = [*KNOWN_DEVICES, *KNOWN_DEVICES, *KNOWN_PARTITIONS]
_LENGTHS = (1, 2, 7, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 1000, 1024, 2048, 4096, 16384)
_SHOWN = 30  # of the differences
_PLANNED = {"attention": "plan_attention", "gemm": "plan_gemm"}


def _length(chance: random.Random) -> int:
    if chance.random() < 0.7:
        return chance.choice(_LENGTHS)
    return round(2 ** chance.uniform(0, 20))


def _some(chance: random.Random, options: dict[str, tuple[float, Callable[[], Any]]]) -> Call:
    """Each option with its probability."""
    return {name: value() for name, (odds, value) in options.items() if chance.random() < odds}


def attention(chance: random.Random) -> Call:
    """Arguments of an attention plan."""
    heads_kv = chance.choice((1, 2, 4, 8, 8, 16, 32))
    q, kv = _length(chance), _length(chance)
    if chance.random() < 0.5:
        kv = q
    batch = chance.choice((1, 1, 2, 3, 4, 8, 16, 64))
    dim = chance.choice((64, 64, 128, 128, 128, 192, 256, 8, 40, 72, 96, 120, 4, 260))
    sizes = {
        "batch": batch,
        "seqlen_q": q,
        "seqlen_kv": kv,
        "num_heads_q": round(heads_kv * chance.choice((1, 1, 2, 4, 5, 8, 1.5))),
        "num_heads_kv": heads_kv,
        "head_dim": dim,
    }
    options = {
        "causal": (0.5, lambda: True),
        "dtype": (0.3, lambda: chance.choice(("float16", "float16", "bfloat16", "float32"))),
        "head_dim_v": (0.2, lambda: chance.choice((64, 128, dim, 32))),
        "softmax_scale": (0.2, lambda: chance.choice((0.1, 1.0, 0.0, -0.5))),
        "window_size": (0.25, lambda: (chance.choice((-1, 0, 127, 4095)), chance.choice((-1, 0)))),
        "softcap": (0.15, lambda: chance.choice((30.0, 50.0, -1.0))),
        "round_mode": (0.3, lambda: chance.choice(("rtne", "rtna", "rtz", "up"))),
        "num_splits": (0.3, lambda: chance.choice((1, 2, 3, 8, 17, 1000, -1))),
        "return_lse": (0.3, lambda: True),
        "top_left": (0.1, lambda: True),
        "sinks": (0.15, lambda: True),
        "total_q": (0.15, lambda: chance.randrange(1, batch * q + 2)),
    }
    found = _some(chance, options)
    if "total_q" in found:
        found["total_kv"] = chance.randrange(1, batch * kv + 2)
    return sizes | found


def gemm(chance: random.Random) -> Call:
    """Arguments of a product's plan."""
    options = {
        "dtype": (0.3, lambda: chance.choice(("float16", "float16", "bfloat16", "float32"))),
        "out_dtype": (0.3, lambda: chance.choice(("float16", "bfloat16", "float32"))),
        "bias": (0.3, lambda: True),
        "alpha": (0.2, lambda: chance.choice((0.5, 2.0))),
        "activation": (0.3, lambda: chance.choice(("silu", "gelu", "silu_and_mul", "relu"))),
        "split_k": (0.3, lambda: chance.choice((1, 2, 4, 7, 64, 1000, -1))),
        "aligned": (0.2, lambda: False),
        "deterministic": (0.2, lambda: False),
    }
    m = chance.choice((1, 2, 3, 4, 8, 16, 17, 32, 64, 65, 128, 256, 1000))
    n, k = (chance.choice((1, 2, 64, 512, 1000, 2048, 2880, 4096, 7168, 28672)) for _ in "nk")
    return {"m": m, "n": n, "k": k} | _some(chance, options)


def outcome(operation: str, call: Call) -> Call:
    """A plan's facts, or its refusal."""
    try:
        plan = getattr(amdattn, _PLANNED[operation])(**call)
    except (ValueError, TypeError, NotImplementedError, amdattn.AmdattnError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    arguments = [{name: repr(value) for name, value in launch.args} for launch in plan.launches]
    return {**plan.as_dict(), "arguments": arguments}


def snapshot(number: int, seed: int) -> list[Call]:
    """So many problems, a quarter of them products."""
    chance = random.Random(seed)
    found = []
    for i in track(range(number), "plans", transient=True):
        operation = "gemm" if i % 4 == 3 else "attention"
        call = {"attention": attention, "gemm": gemm}[operation](chance)
        call["device"] = chance.choice(_DEVICES)
        found.append({"operation": operation, "call": call, "outcome": outcome(operation, call)})
    return json.loads(json.dumps(found))  # as a file has them


def differences(before: list[Call], now: list[Call], renames: dict[str, str]) -> list[str]:
    """What is not as it was, a line each."""
    found = [] if len(before) == len(now) else [f"{len(before)} problems before, {len(now)} now"]
    for former, row in zip(before, now, strict=False):
        if former["call"] != row["call"]:
            found.append(f"another call: {former['call']} | {row['call']}")
            continue
        text = json.dumps(former["outcome"])
        for old, new in renames.items():
            text = text.replace(old, new)
        was, is_now = json.loads(text), row["outcome"]
        for key in sorted({*was, *is_now}):
            if was.get(key) != is_now.get(key):
                changed = f"{key}: {was.get(key)} -> {is_now.get(key)}"
                found.append(f"{row['operation']} {row['call']}\n    {changed}")
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--write", type=Path, help="write the snapshot to this file")
    parser.add_argument("--against", type=Path, help="an earlier snapshot to compare with")
    parser.add_argument("--renames", type=Path, help="JSON object: former text to present text")
    arguments = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    now = snapshot(arguments.number, arguments.seed)
    refused = sum("error" in row["outcome"] for row in now)
    counts = Counter(row["operation"] for row in now)
    console.print(f"{dict(counts)}, of them {refused} refused")
    if arguments.write:
        arguments.write.write_text(json.dumps(now, indent=1))
    if arguments.against:
        renames = json.loads(arguments.renames.read_text()) if arguments.renames else {}
        found = differences(json.loads(arguments.against.read_text()), now, renames)
        for line in found[:_SHOWN]:
            console.print(line, markup=False)
        console.print(f"{len(found)} differences")
        raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
