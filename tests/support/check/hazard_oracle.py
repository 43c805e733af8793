"""Ask LLVM how many wait states stand between two instructions, and record what it says.

LLVM's post-RA hazard recogniser inserts the s_nop that an instruction needs after another. Pairs of
instructions are given to it as machine IR; text and encoding of both come back from its printer.
LLVM 24 or later, whose triple names the processor:

    python -m tests.support.check.hazard_oracle --llc /usr/lib/llvm-24/bin/llc --cpu gfx950
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.check.hazard_instructions import (
    EXEC,
    M0,
    VCC,
    Slot,
    Template,
    all_matrix,
    templates,
)
from tests.support.paths import TESTS
from tests.support.vdev_library import CPUS, DEFAULT_CPU

TRIPLES = {"gfx942": "amdgpu9.42-amd-amdhsa", "gfx950": "amdgpu9.50-amd-amdhsa"}
FOLDER = TESTS / "virtual_device" / "check"
_NO_XNACK = '  !llvm.module.flags = !{!0}\n  !0 = !{i32 1, !"amdgpu.xnack", i32 0}\n'
_NAME = re.compile(r"^f(\d+):")
# LLVM copies an amount that is in the last register of a block of eight.
_LONG_SHIFT = re.compile(r"v_(lshlrev_b64|lshrrev_b64|ashrrev_i64) ")
_LINE = re.compile(r"^\t(\S.*?)\s*; encoding: \[(.*)\]$")


def oracle_path(cpu: str) -> Path:
    """Where LLVM's answers for a processor are recorded."""
    return FOLDER / f"hazard_oracle_{cpu}.json"


@dataclass(frozen=True, slots=True)
class Coded:
    """An instruction as LLVM prints and encodes it."""

    text: str
    encoding: str  # hexadecimal, in memory order


@dataclass(frozen=True, slots=True)
class Answer:
    """Wait states that LLVM puts between two instructions."""

    producer: Coded
    consumer: Coded
    wait: int


def hazard_free(llc: Sequence[str], cpu: str, blocks: Sequence[Sequence[str]]) -> list[list[Coded]]:
    """Straight code in machine IR, with the s_nop that LLVM inserts, and s_endpgm."""
    declared = "".join(f"  define void @f{i}() {{ ret void }}\n" for i in range(len(blocks)))
    module = f"--- |\n{declared}{_NO_XNACK}...\n"
    functions = (
        f"---\nname: f{i}\nbody: |\n  bb.0:\n    "
        + "\n    ".join(block)
        + "\n    S_ENDPGM 0\n...\n"
        for i, block in enumerate(blocks)
    )
    done = subprocess.run(
        [*llc, f"-mtriple={TRIPLES[cpu]}", "-start-before=post-RA-hazard-rec",
         "-show-mc-encoding", "-x=mir", "-o=-", "-"],
        input=module + "".join(functions), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stderr[:4000])
    bodies: list[list[Coded]] = [[] for _ in blocks]
    body: list[Coded] = []
    for line in done.stdout.splitlines():
        if name := _NAME.match(line):
            body = bodies[int(name[1])]
        elif found := _LINE.match(line):
            text = found[1].replace("\t", " ").split(" ; ")[0].strip()
            body.append(Coded(text, "".join(b[2:4] for b in found[2].split(","))))
    return bodies


def _answer(body: Sequence[Coded]) -> Answer | None:
    """Of a function: producer, nops, consumer, end; None if LLVM has rewritten one of the two."""
    nops = body[1:-2]
    if body[-1].text != "s_endpgm" or not all(nop.text.startswith("s_nop ") for nop in nops):
        if any(_LONG_SHIFT.match(coded.text) for coded in body):
            return None
        raise RuntimeError(f"not a pair: {body}")
    return Answer(body[0], body[-2], sum(int(nop.text[6:]) + 1 for nop in nops))


def ask(llc: Sequence[str], cpu: str, pairs: Sequence[tuple[str, str]]) -> list[Answer | None]:
    """LLVM's answers for pairs of instructions in machine IR."""
    return [_answer(body) for body in hazard_free(llc, cpu, pairs)]


def _disjoint(template: Template, start: Mapping[str, int]) -> dict[str, int]:
    """Registers for all slots, one after the other from `start` of each file."""
    at, chosen = dict(start), {}
    for name, slot in template.slots.items():
        step = slot.alignment
        first = (at[slot.file] + step - 1) // step * step
        chosen[name] = first
        at[slot.file] = first + slot.width
    return chosen


def _placements(slot: Slot, other: Slot, first: int) -> Iterator[int]:
    """First registers that put `slot` on `other` at `first`: same, shifted, at its end."""
    step = slot.alignment
    for candidate in (first, first + step, first - step, first + other.width - slot.width):
        if candidate >= 0 and candidate % step == 0:
            yield candidate


def pairs_of(producer: Template, consumer: Template) -> Iterator[tuple[str, str]]:
    """The two with no register in common, and with each two slots overlapping in several ways."""
    first = _disjoint(producer, {"v": 8, "a": 8, "s": 4})
    second = _disjoint(consumer, {"v": 96, "a": 96, "s": 40})
    text = producer.render(first)
    yield text, consumer.render(second)
    for name, slot in consumer.slots.items():
        for other_name, other in producer.slots.items():
            if other.file != slot.file:
                continue
            for at in _placements(slot, other, first[other_name]):
                yield text, consumer.render({**second, name: at})
                # The same registers for C and D, as accumulations have it.
                if name == "c" and consumer.slots.get("d") == slot:
                    yield text, consumer.render({**second, "c": at, "d": at})
        if slot.file == "s":
            # Slots named `x` may be any scalar register.
            for at in {1: (VCC, M0), 2: (VCC, EXEC)}.get(slot.width, ()):
                if at != VCC and not name.startswith("x"):
                    continue
                yield text, consumer.render({**second, name: at})
                for other_name, other in producer.slots.items():
                    if other == slot and (at == VCC or other_name.startswith("x")):
                        with_special = producer.render({**first, other_name: at})
                        yield with_special, consumer.render({**second, name: at})


def random_block(cpu: str, length: int, rng: random.Random) -> list[str]:
    """Instructions whose registers come from a small pool, so that they meet often."""
    texts = []
    for template in rng.choices(templates(cpu), k=length):
        chosen = {
            name: rng.randrange(0, 12, slot.alignment) for name, slot in template.slots.items()
        }
        if "c" in chosen and template.slots["c"].width > 2:
            chosen["c"] = chosen["d"]  # D may not overlap a large C in part
        texts.append(template.render(chosen))
    return texts


def questions(cpu: str, rng: random.Random) -> dict[tuple[str, str], object]:
    """All pairs without repetition, and the kind that each is of: which templates, or random."""
    reader = Template("{d:v1} = V_MOV_B32_e32 {a:v1}, implicit $exec")
    found: dict[tuple[str, str], object] = {}
    for mir in all_matrix(cpu):
        template = Template(mir)
        chosen = _disjoint(template, {"v": 8, "a": 8, "s": 4})
        pair = template.render(chosen), reader.render({"d": 96, "a": chosen["d"]})
        found.setdefault(pair, mir)
    for i, producer in enumerate(templates(cpu)):
        for j, consumer in enumerate(templates(cpu)):
            for pair in pairs_of(producer, consumer):
                found.setdefault(pair, (i, j))
    for n in range(2000):
        first, then = random_block(cpu, 2, rng)
        found.setdefault((first, then), n)
    return found


def answers(
    llc: Sequence[str], cpu: str, pairs: Sequence[tuple[str, str]]
) -> Iterator[Answer | None]:
    """Answers to many questions, a few thousand at a time."""
    for i in range(0, len(pairs), 4000):
        yield from ask(llc, cpu, pairs[i : i + 4000])


def representatives(
    asked: Iterable[object], found: Sequence[Answer], rng: random.Random
) -> list[Answer]:
    """One pair of each kind and number of wait states; of those without a wait, every fourth."""
    kept: dict[tuple[object, int], Answer] = {}
    order = list(zip(asked, found, strict=True))
    rng.shuffle(order)
    for kind, answer in order:
        if answer.wait or zlib.crc32(str(kind).encode()) % 4 == 0:
            kept.setdefault((kind, answer.wait), answer)
    return list(kept.values())


def record(version: str, found: Iterable[Answer], blocks: Iterable[Sequence[Coded]]) -> str:
    """JSON: `instructions` are [text, encoding]; `pairs` of their indices and the wait states.

    `blocks` are the encodings of longer code, as LLVM made it free of hazards.
    """
    index: dict[Coded, int] = {}
    pairs = [
        [index.setdefault(a.producer, len(index)), index.setdefault(a.consumer, len(index)), a.wait]
        for a in found
    ]
    coded = ",\n".join(json.dumps([c.text, c.encoding]) for c in index)
    lines = [pairs[i : i + 10] for i in range(0, len(pairs), 10)]
    listed = ",\n".join(json.dumps(line, separators=(",", ":"))[1:-1] for line in lines)
    code = ",\n".join(json.dumps(" ".join(c.encoding for c in block)) for block in blocks)
    head = f'{{"llvm": {json.dumps(version)},\n"instructions": [\n'
    return f'{head}{coded}],\n"pairs": [\n{listed}],\n"blocks": [\n{code}]}}\n'


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--llc", default="llc-24", help="LLVM's static compiler")
    parser.add_argument("--cpu", default=DEFAULT_CPU, choices=CPUS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--every", type=int, default=1, help="ask every Nth question only")
    parser.add_argument("--all", action="store_true", help="record every pair, not one of a kind")
    args = parser.parse_args()
    banner = subprocess.run([args.llc, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"LLVM version (\S+)", banner.stdout)
    if version is None:
        raise SystemExit(f"{args.llc} is not LLVM's: {banner.stdout[:200]}")
    rng = random.Random(942)
    asked = dict(list(questions(args.cpu, rng).items())[:: args.every])
    answered = list(zip(asked.values(), answers([args.llc], args.cpu, list(asked)), strict=True))
    kinds, found = [kind for kind, answer in answered if answer], [a for _, a in answered if a]
    kept = found if args.all else representatives(kinds, found, rng)
    length, count = 24, 100
    other = random.Random(943)
    blocks = hazard_free(
        [args.llc], args.cpu, [random_block(args.cpu, length, other) for _ in range(count)]
    )
    (args.out or oracle_path(args.cpu)).write_text(record(version[1], kept, blocks))
    print(f"{len(found)} pairs, {sum(a.wait > 0 for a in found)} with a wait, {len(kept)} kept")


if __name__ == "__main__":
    main()
