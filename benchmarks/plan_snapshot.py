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
import sys
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import track

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import amdattn
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS
from tests.support.problems import Call, attention_arguments, gemm_arguments

DRAWN = {"attention": attention_arguments, "gemm": gemm_arguments}
_DEVICES = [*KNOWN_DEVICES, *KNOWN_DEVICES, *KNOWN_PARTITIONS]
_SHOWN = 30  # of the differences
_PLANNED = {"attention": "plan_attention", "gemm": "plan_gemm"}


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
        call = DRAWN[operation](chance)
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
