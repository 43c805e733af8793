"""What the steps of attention's schedules are: the head of each text in asm_src/attn/schedules.

A row names a step as the text does, the `STEP` of asm_src/attn/steps.h that it is, the function or
instruction which that calls, and what it does with which registers.
"""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

from build_scripts.toolchain import ASM_SRC

WIDTH = 100


class Row(NamedTuple):
    """A step: its name, its enumerator, what that calls, what it does."""

    name: str
    step: str
    calls: str
    does: str


_INTRO = (
    "In a unit the vector steps are the softmax of its own scores; `score` is of the unit after "
    "it, `output` of the unit before. attn/steps.h has each step as STEP(...), attn/unit_steps.h "
    "which unit has it and why, attn/schedule.h the rules by which it is placed. n is the number "
    "behind a name. operand, row, softmax, uniform, load and lds are members of Pipeline "
    "(attn/pipeline.h); functions are there or in attn/kv_loads.h."
)

_ROWS = (
    Row("score", "kScore", "multiply_keys", "S^T = K Q^T: operand.score, from operand.k and Q"),
    Row("output", "kOutput", "multiply_values", "O^T += V^T P^T: kAccOutput, operand.v, operand.p"),
    Row("add_unit", "kAddUnit", "v_accumulate_f32", "row.sum += row.unit_sum, unit before"),
    Row("add_sample", "kAddSample", "v_accumulate_f32",
        "row.sample, row.rounded_sample, unit before"),
    Row("cap_rate", "kCapRate", "v_mul_f32", "softmax.x[n] = score n * uniform.cap_rate"),
    Row("cap_exp", "kCapExp", "v_exp_f32", "softmax.x[n] = 2^x"),
    Row("cap_add", "kCapAdd", "v_add_f32_1", "softmax.x[n] += 1"),
    Row("cap_rcp", "kCapRcp", "v_rcp_f32", "softmax.x[n] = 1 / x: the score, capped"),
    Row("scale", "kScale", "v_fma_f32",
        "softmax.x[n] = score n * uniform.scale + row.negative_ref; under a mask -infinity where "
        "Mask (attn/mask.h) hides the key"),
    Row("exp", "kExp", "v_exp_f32", "softmax.x[n] = 2^x: a probability of P"),
    Row("sum", "kSum", "v_add_f32", "row.unit_sum += softmax.x[n]"),
    Row("exceeds", "kExceeds", "v_cmp_nlt_f32",
        "whether row.unit_sum asks for a new reference: rescale() behind the unit"),
    Row("flip_read_v", "kFlipReadV", "v_xor_b32", "lds.read_v to another stage"),
    Row("flip_read_k", "kFlipReadK", "v_xor_b32", "lds.read_k[n] to another stage"),
    Row("read_v", "kReadV", "read_values", "operand.v from LDS, behind its last `output`"),
    Row("read_k", "kReadK", "read_keys", "operand.k from LDS, behind its last `score`"),
    Row("set_m0", "kSetM0", "set_m0", "M0: where load_k n goes"),
    Row("next_block", "kNextBlock", "next_block", "load.buffer_k, load.buffer_v: the next block"),
    Row("wait_v", "kWaitV", "s_waitcnt",
        "for read_v of the next `output`; later LDS instructions may be under way, so many"),
    Row("wait_k", "kWaitK", "s_waitcnt",
        "for read_k of the next `score`; later LDS instructions may be under way, so many"),
    Row("barrier", "kBarrier", "s_barrier",
        "all waves are past wait_block: what each brought to LDS may be read, and the stage that "
        "all have read may be filled"),
)  # fmt: skip

# V through registers, where it is transposed.
_STAGED = (
    Row("round", "kRound", "v_add_u32", "softmax.half_up[n] = x[n] + half a unit of 16 bits"),
    Row("sample", "kSample", "v_and_b32", "row.unit_rounded_sample: x[kSampled] as rounded"),
    Row("pack", "kPack", "v_perm_b32", "rounds P: operand.p = upper halves of two numbers"),
    Row("transpose_v", "kTranspose", "transpose", "load.transposed = elements of two load.staged"),
    Row("flip_write_v", "kFlipWriteV", "v_xor_b32", "lds.write_v to the other stage"),
    Row("write_v", "kWriteV", "write_values", "load.transposed[n] to LDS"),
    Row("load_v", "kLoadV", "load_v", "load.staged[n] = V from memory, two blocks ahead"),
    Row("load_k", "kLoadK", "load_k", "K from memory to LDS, two blocks ahead"),
    Row("prefetch", "kPrefetch", "prefetch", "a line of K or V from memory to the L2"),
    Row("next_prefetch", "kNextPrefetch", "next_prefetch", "load.offset_of_lines, a block further"),
    Row("flip_m0", "kFlipM0", "s_xor_b32", "load.m0 to the other stage of K"),
    Row("wait_staged", "kWaitStaged", "s_waitcnt", "for load_v, before transpose_v"),
    Row("wait_block", "kWaitBlock", "s_waitcnt",
        "for load_k and write_v of the block that is read next, and for all LDS instructions"),
)  # fmt: skip

# V straight to LDS, transposed as it is read.
_DIRECT = (
    Row("sample", "kSample", "upper_of", "row.unit_rounded_sample: x[kSampled] as rounded"),
    Row("pack", "kPack", "convert_pair", "rounds P: operand.p = x[2 n], x[2 n + 1] in 16 bits"),
    Row("load_k", "kLoadK", "load_k",
        "K, from n = kLoadsK on V, from memory to LDS, two blocks ahead or more"),
    Row("flip_m0", "kFlipM0", "flip_m0", "load.m0 to the stage that is filled next"),
    Row("flip_flips", "kFlipFlips", "flip_flips", "load.flip[n]: which bit of a stage is next"),
    Row("wait_block", "kWaitBlock", "s_waitcnt",
        "for load_k of the oldest block on its way; later ones may be under way, so many; with "
        "lgkmcnt(0) for all LDS instructions, too"),
)  # fmt: skip


def rows(name: str) -> dict[str, Row]:
    """By name, in the order of the enumerators, the steps that the text of a member may have."""
    of_target = _DIRECT if name.endswith("_cdna4") else _STAGED
    known = {row.name: row for row in (*_ROWS, *of_target)}
    return {step: known[step] for step in _order() if step in known}


def _order() -> list[str]:
    text = (ASM_SRC / "attn" / "step_types.h").read_text(encoding="utf-8")
    return re.findall(r'\{"(\w+)", Unit::', text)


def steps_in(body: str) -> set[str]:
    """The names of the steps in the tables of a text."""
    lines = (line for line in body.splitlines() if re.match(r" *\d+  ", line))
    return {name for line in lines for name in re.findall(r"\b([a-z]\w*)(?= \d| \w+cnt)", line)}


def with_legend(name: str, body: str) -> str:
    """The text of a member: its first lines, its steps, its tables.

    Raises
    ------
    KeyError
        A step has no row.
    """
    head, _, tables = body.partition("\n\n")
    known, there = rows(name), steps_in(body)
    if unknown := there - known.keys():
        raise KeyError(f"build_scripts/schedule_legend.py has no row for {sorted(unknown)}")
    lines = [line for row in known.values() if row.name in there for line in _lines(row)]
    return "\n\n".join((head, textwrap.fill(_INTRO, WIDTH), "\n".join(lines), tables))


def without_legend(text: str) -> str:
    """What `with_legend` was given."""
    head, _, rest = text.partition("\n\n")
    return head + "\n\n" + rest[rest.index("Unit of tile") :]


def _lines(row: Row) -> list[str]:
    first = f"{row.name:<14}{row.step:<15}{row.calls:<17}"
    return textwrap.wrap(row.does, WIDTH, initial_indent=first, subsequent_indent=" " * len(first))
