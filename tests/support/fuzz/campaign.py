"""The fuzzing campaign: libFuzzer on the whole virtual device under AddressSanitizer.

`python -m tests.support.fuzz.campaign FOLDER [--arch gfx950]` runs it on the first product of an
architecture and prints docs/studies/checked-mode-fuzz.md, or of gfx950 what stands there of it. It
needs atheris (for libFuzzer) and ziglang.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from amdattn.arch.products import of_arch
from amdattn.compiler import DEFAULT_ARCH
from build_scripts.toolchain import LLVM22
from tests.support.fuzz import sanitized_build, seeds

RUNS_PER_PROCESS = 12_500
TIMEOUT = 60  # seconds for one input; a hang is a crash
RSS_LIMIT = 6000  # MB
# What was found, and what became of it.
FIXED = [
    "By a sanitizer: a kernel descriptor could ask for more user and preloaded SGPRs than exist,"
    " and the values were written past the registers of the wave. The launch is now refused"
    " (hip/launch.cc).",
    "By the time limit: a function symbol far outside the code made `amdattn_vdev_listing` run for"
    " minutes. Symbols now count as functions only where there is code (core/code_object.cc).",
    "In the review of that: `hipModuleLoadData` allocated as many bytes as the headers claim, up to"
    " 4 GiB. An image is now copied piece by piece, as far as it can be read"
    " (core/offload_bundle.cc).",
    "In the review of that: kernel names that are not ASCII made the JSON of the findings invalid"
    " (check/session.cc).",
    "By the time limit: a loop that keeps changing memory never ends, here as on a GPU. The option"
    " `max_total_instructions` ends it; it is off unless set.",
    "From outside, because no mutation touched these fields: scratch of any size was accepted, and"
    " scratch whose size is no multiple of 4 was written past its end; kernel arguments of"
    " gigabytes were allocated; GPR indexing was bounded by the file, not by the wave's allocation."
    " Sizes are now capped (core/device.cc), indices bounded (isa/gpr_index.cc), and the campaign"
    " varies all of these; a sanitizer guards the registers that a wave does not have.",
    "By that guard: checked mode read the address registers of a load before it refused the load"
    " for naming registers beyond the allocation (core/worker.cc). In the review of that: in the"
    " performance model a load through something that is no buffer resource ended the process"
    " (timing/compute_unit.cc).",
]


@dataclass
class Result:
    """Sums over all processes of a campaign."""

    counts: Counter[str] = field(default_factory=Counter)
    mutations: Counter[str] = field(default_factory=Counter)
    checked_inputs: int = 0
    crashes: list[str] = field(default_factory=list)
    edges: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def run(
    work: Path,
    runs: int,
    jobs: int,
    program: Path | None = None,
    arch: str = DEFAULT_ARCH,
) -> Result:
    """Run at least `runs` inputs, half of them in checked mode.

    Parameters
    ----------
    work : Path
        Folder for the build, corpora, logs and crashing inputs.
    runs : int
        Inputs altogether.
    jobs : int
        Processes at a time.
    program : Path, optional
        A target that is built already.
    arch : str
        Whose code objects, and whose first product runs them.
    """
    program = program or sanitized_build.build(work / "build", jobs)
    seeds.write(work / "seeds", arch)
    result, began = Result(), time.monotonic()
    processes = -(-runs // RUNS_PER_PROCESS)

    def one(index: int) -> tuple[bool, subprocess.CompletedProcess[str], Path]:
        checked = index % 2 == 1
        folder = work / f"process{index}"
        (folder / "corpus").mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1")
        environment["AMDATTN_FUZZ_PRODUCT"] = of_arch(arch).name
        if checked:
            environment["AMDATTN_FUZZ_CHECKED"] = "1"
        command = [str(program), f"-runs={RUNS_PER_PROCESS}", f"-seed={index + 1}"]
        command += ["-max_len=65536", "-len_control=0", f"-timeout={TIMEOUT}"]
        command += [f"-rss_limit_mb={RSS_LIMIT}", f"-artifact_prefix={folder}/"]
        command += [str(folder / "corpus"), str(work / "seeds")]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", check=False
        )
        (folder / "log").write_text(done.stderr)
        return checked, done, folder

    with ThreadPoolExecutor(jobs) as pool:
        for checked, done, folder in pool.map(one, range(processes)):
            if done.returncode != 0:
                artifacts = sorted(p.name for p in folder.iterdir() if "-" in p.name)
                result.crashes.append(f"{folder.name}: exit {done.returncode} {artifacts}")
            lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
            for line in lines:
                counts = json.loads(line)
                result.mutations.update(counts.pop("mutations"))
                result.counts.update(counts)
                result.checked_inputs += counts["inputs"] if checked else 0
            mode = "checked" if checked else "fast"
            coverage = [line for line in done.stderr.splitlines() if " cov: " in line]
            if coverage:
                edges = int(coverage[-1].split(" cov: ")[1].split()[0])
                result.edges[mode] = max(result.edges.get(mode, 0), edges)
    result.seconds = time.monotonic() - began
    return result


def page(result: Result) -> str:
    """Markdown summary of a campaign."""
    counts = result.counts
    lines = [
        "# Fuzzing of code objects",
        "",
        "A corrupted or hostile code object causes an error or a run that ends; it never crashes",
        "or hangs the host. `tests/virtual_device/fuzz` shows this: libFuzzer (coverage-guided,",
        f"from atheris {importlib.metadata.version('atheris')}) drives the whole library, compiled",
        f"by {LLVM22} with AddressSanitizer and UndefinedBehaviorSanitizer",
        "(bounds, shifts, division, null, object size).",
        "",
        "Each input is loaded with `hipModuleLoadData` from memory that ends in an unmapped page.",
        "Up to two of its kernels are launched with bounded instructions, and in checked mode the",
        "findings and listings are read. A custom mutator knows headers, segments, symbols,",
        "relocations, MessagePack, descriptors and instructions. It sets each number of the",
        "metadata and each field of a descriptor to values around the limits, alone or together",
        "with the other copy of it, indexes registers, and accesses scratch around its end. One",
        "input in a hundred has 64 workgroups that may run ten times as long. In checked mode only",
        "images that load are mutated further.",
        "",
        "`python -m tests.support.fuzz.campaign FOLDER --runs 500000 --jobs 1` writes this page;",
        "`pytest -m slow tests/virtual_device/fuzz` runs a part of it, and without `-m slow` a",
        "short one on the shipped library. The numbers are for gfx942; `--arch gfx950` fuzzes code",
        "objects for gfx950 on an MI355X. There, 50,000 inputs (25,000 in checked mode, 20,726",
        "launches, 7,231 edges in checked mode and 3,990 in fast mode) gave no crash, hang or",
        "report.",
        "",
        "| | |",
        "|---|---|",
        f"| Inputs | {counts['inputs']:,} ({result.checked_inputs:,} in checked mode) |",
        f"| Accepted by the loader | {counts['loaded']:,} |",
        f"| Launches | {counts['launches']:,} |",
        f"| ... that completed without an error | {counts['completed']:,} |",
        f"| ... that were long | {counts['long_runs']:,} |",
        f"| Inputs with findings of checked mode | {counts['findings']:,} |",
    ]
    lines.append(f"| Inputs a second | {counts['inputs'] / result.seconds:,.0f} |")
    for mode, edges in sorted(result.edges.items()):
        lines.append(f"| Edges covered, {mode} mode | {edges:,} |")
    lines += [
        f"| Crashes, hangs, sanitizer reports | {len(result.crashes)} |",
        "",
        "| Mutation | Applied |",
        "|---|---:|",
        *(f"| {name.replace('_', ' ')} | {n:,} |" for name, n in result.mutations.items()),
        "",
        "An input has several mutations, applied one after the other.",
        "",
        "## Found and fixed",
        "",
        *(f"- {text}" for text in FIXED),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("--runs", type=int, default=500_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--arch", choices=list(seeds.OF_ARCH), default=DEFAULT_ARCH)
    parser.add_argument("--program", type=Path, help="a target that is built already")
    args = parser.parse_args()
    result = run(args.work, args.runs, args.jobs, args.program, args.arch)
    print(page(result), end="")
    raise SystemExit("\n".join(result.crashes) or 0)


if __name__ == "__main__":
    main()
