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
    "Within a unit the vector steps are the softmax of its own scores, `score` belongs to the next "
    "unit and `output` to the one before. attn/steps.h defines each step as STEP(...), "
    "attn/unit_steps.h says which unit has it and why, attn/schedule.h how it is placed. "
    "n is the number after a name. operand, row, softmax, uniform, load and lds are members of "
    "Pipeline (attn/pipeline.h); load_*, read_* and write_* are in attn/kv_loads.h, other "
    "functions in attn/pipeline.h."
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
        "softmax.x[n] = score n * uniform.scale + row.negative_ref; in masked blocks -infinity "
        "for keys that Mask (attn/mask.h) hides"),
    Row("exp", "kExp", "v_exp_f32", "softmax.x[n] = 2^x: a probability of P"),
    Row("sum", "kSum", "v_add_f32", "row.unit_sum += softmax.x[n]"),
    Row("exceeds", "kExceeds", "v_cmp_nlt_f32",
        "does row.unit_sum need a new reference? Then rescale() after the unit"),
    Row("flip_read_v", "kFlipReadV", "v_xor_b32", "lds.read_v to another stage"),
    Row("flip_read_k", "kFlipReadK", "v_xor_b32", "lds.read_k[n] to another stage"),
    Row("read_v", "kReadV", "read_values", "operand.v from LDS, right after its last use"),
    Row("read_k", "kReadK", "read_keys", "operand.k from LDS, right after its last use"),
    Row("set_m0", "kSetM0", "set_m0", "M0: where load_k n goes"),
    Row("next_block", "kNextBlock", "next_block", "load.buffer_k, load.buffer_v: the next block"),
    Row("wait_v", "kWaitV", "s_waitcnt",
        "until operand.v of the next `output` is read; the count is of later LDS instructions, "
        "which may still be in flight"),
    Row("wait_k", "kWaitK", "s_waitcnt",
        "the same for operand.k of the next `score`"),
    Row("barrier", "kBarrier", "s_barrier",
        "every wave is past wait_block: blocks that any of them brought may be read, and the "
        "stage that all of them have read may be filled again"),
)  # fmt: skip

# V through registers, where it is transposed.
_STAGED = (
    Row("round", "kRound", "v_add_u32", "softmax.half_up[n] = x[n] + half a unit of 16 bits, so "
        "that pack rounds"),
    Row("sample", "kSample", "v_and_b32", "row.unit_rounded_sample: x[kSampled] as rounded"),
    Row("pack", "kPack", "v_perm_b32", "truncates P: operand.p = upper halves of two numbers"),
    Row("transpose_v", "kTranspose", "transpose", "load.transposed = elements of two load.staged"),
    Row("flip_write_v", "kFlipWriteV", "v_xor_b32", "lds.write_v to the other stage"),
    Row("write_v", "kWriteV", "write_values", "load.transposed[n] to LDS"),
    Row("load_v", "kLoadV", "load_v", "load.staged[n] = V from memory, two blocks ahead"),
    Row("load_k", "kLoadK", "load_k", "K from memory to LDS, two blocks ahead"),
    Row("prefetch", "kPrefetch", "prefetch", "a line of K or V from memory to the L2"),
    Row("next_prefetch", "kNextPrefetch", "next_prefetch", "load.offset_of_lines, a block further"),
    Row("flip_m0", "kFlipM0", "s_xor_b32", "load.m0 to the other stage of K"),
    Row("wait_staged", "kWaitStaged", "s_waitcnt", "until load_v has come; later loads may not"),
    Row("wait_block", "kWaitBlock", "s_waitcnt",
        "until this wave's load_k and write_v of the block read next are in LDS, and its reads "
        "have come; a count above 0 is of later load_v"),
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
        "until this wave's load_k of the oldest block in flight are in LDS; the count is of later "
        "ones; with lgkmcnt(0) also until its reads have come"),
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
