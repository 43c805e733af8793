"""Which tiles the first workgroups of a grid compute under a mask: what planning counts on."""

from __future__ import annotations

import pytest

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.arch.products import of_arch
from tests.support.fake_rocm import run

# Launches fewer workgroups than the plan has, and looks which rows of which heads were written.
CODE = """
import dataclasses
import ml_dtypes, numpy as np
import amdattn
from amdattn.device import runtime
from amdattn.op.launch import PreparedLaunch
from amdattn.op.plan import Operand
from amdattn.ops.attention.work import WorkMap

KEYS, COLUMNS = 9, 64

def look(HEADS, ROWS):
    sizes = 1, ROWS, KEYS, HEADS, HEADS, COLUMNS
    plan = amdattn.plan_attention(*sizes, causal=True, num_splits=1, device="{device}")
    work = WorkMap.of(plan.problem, plan.forward)
    zeros = np.zeros((1, ROWS, HEADS, COLUMNS), ml_dtypes.bfloat16)
    strides = {{"batch": ROWS * HEADS * COLUMNS, "seq": HEADS * COLUMNS, "head": COLUMNS}}
    q, kv = amdattn.asarray(zeros), amdattn.asarray(zeros[:, :KEYS])
    chunk = work.heads_at_once * work.q_tiles
    begin = work.last_chunk[0] * chunk
    ends = {{9, chunk // 2, begin, begin + work.last_chunk[1] + 5, work.tiles - 1}}
    for end in sorted(n for n in ends if 0 < n < work.tiles):
        o = amdattn.asarray(np.full_like(zeros, np.nan))
        launch = dataclasses.replace(plan.forward, grid=(end, 1, 1))
        of = lambda array: Operand(array.address, strides)
        operands = {{"q": of(q), "k": of(kv), "v": of(kv), "o": of(o)}}
        PreparedLaunch(launch, runtime.get()).run(operands, 0)
        runtime.synchronize()
        written = ~np.isnan(o.numpy().astype(np.float32)).any(axis=-1)
        expected = np.zeros_like(written)
        for n in range(end):
            item = work.item(n)
            expected[item.batch, item.q_begin : item.q_begin + work.q_tile, item.head] = True
        print(HEADS, end, "same" if (written == expected).all() else "other")

for sizes in {sizes}:
    look(*sizes)
"""
# Heads and rows. Of gfx950 one chunk of all heads; four, the last of which has what is left; an odd
# number.
SIZES = (61, 300), (274, 520), (104, 1030)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_first_workgroups(arch: str) -> None:
    """Up to either end of a chunk of heads, within chunks and layers, and all but one."""
    code = CODE.format(device=of_arch(arch).name, sizes=SIZES)
    status, lines, errors = run(code, AMDATTN_DEVICE=f"virtual:{arch}")
    assert status == 0, errors
    found = [line.split() for line in lines]
    assert {same for _, _, same in found} == {"same"}, lines
    for heads, _ in SIZES:
        assert sum(line[0] == str(heads) for line in found) >= 3, lines
