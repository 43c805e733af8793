"""Plans of chunks over caches: tiles in parts where that is faster, and estimates near the model.

`python -m benchmarks.attention_prefill --num-splits 0 1 2 4` prints what so many parts take.
"""

from __future__ import annotations

import dataclasses

import pytest

import amdattn
from amdattn import tuning, virtual
from amdattn.arch.props import as_device_props
from amdattn.device import manifest, runtime
from amdattn.op.choices import fastest
from amdattn.ops.cache_attention import prefill_planning as planning
from amdattn.ops.cache_attention.prefill_plan import PrefillPlan
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem

# Modelled times of attention and its merge, us: sequences, queries and keys of each, heads,
# whether keys are in pages. Of the model's library 097d1fef5842, normal inputs.
MODELLED = {
    ((4, 512, 8192, 8, 1), 0): {"MI300X": 96.8, "MI355X": 53.5},
    ((8, 256, 4096, 8, 1), 0): {"MI300X": 59.5, "MI355X": 40.6},
    ((2, 1024, 4096, 8, 1), 0): {"MI300X": 58.6, "MI355X": 36.4},
    ((4, 512, 2048, 16, 2), 0): {"MI300X": 44.5, "MI355X": 24.3},
    ((4, 128, 8192, 8, 1), 64): {"MI300X": 50.6, "MI355X": 40.9},
    ((2, 256, 4096, 32, 8), 64): {"MI300X": 58.7, "MI355X": 36.4},
    ((8, 64, 4096, 8, 1), 64): {"MI300X": 46.0, "MI355X": 37.1},
    ((3, 384, 6000, 8, 2), 0): {"MI300X": 48.9, "MI355X": 36.1},
    ((32, 32, 2048, 8, 1), 64): {"MI300X": 42.8, "MI355X": 22.6},
}
LEAST, MOST = 0.5, 1.1  # of the modelled time that an estimate may be
# Of the best number of parts. With num_splits=4 the same parts are a grid for the greatest lengths,
# where an XCD has all heads of few sequences instead of one head of all: 1.32.
BAR = 1.35


def problem(shape, page_size, num_splits=0, **options):
    batch, queries, keys, heads_q, heads_kv = shape
    return PrefillProblem(
        batch, queries, keys, heads_q, heads_kv, 128, causal=True, cache_seqlens=True,
        page_size=page_size, num_pages=batch * -(-keys // page_size) if page_size else batch,
        num_splits=num_splits, **options,
    )  # fmt: skip


def chosen(of, props):
    found = planning.choices(of, props, manifest.kernels())
    return found, fastest(found.items)


@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
@pytest.mark.parametrize(("shape", "page_size"), MODELLED, ids=str)
def test_estimates_are_near_the_model(shape, page_size, device):
    props = as_device_props(device)
    _, best = chosen(problem(shape, page_size), props)
    us = best.estimated_clk / props.peak_clock_ghz / 1e3
    assert LEAST <= us / MODELLED[shape, page_size][device] <= MOST


@pytest.mark.parametrize("device", ["MI300X", "MI355X"])
@pytest.mark.parametrize(("shape", "page_size"), MODELLED, ids=str)
def test_there_is_room_for_the_parts_of_all_tiles(shape, page_size, device):
    """Else none is cut, and the launch that merges them is for nothing."""
    props = as_device_props(device)
    of = problem(shape, page_size)
    found, best = chosen(of, props)
    plan = planning.build(of, props, best, found)
    if len(plan.launches) < 3:
        return
    rows = best.kernel.tile["q"]
    args = dict(plan.launches[1].args)
    needed = shape[0] * -(-shape[1] // rows) * shape[3]
    assert args["parts"] > 1
    assert args["merge_tiles"] >= needed


def attention_us(of):
    """Modelled, of attention and its merge."""
    props = amdattn.device_props()
    found, best = chosen(of, props)
    plan = PrefillPlan.of(planning.build(of, props, best, found))
    operands = tuning.random_operands(plan)
    views, _ = plan.views_of({name: operands[name] for name in plan.input_names}, None)
    workspace = plan.new_workspace()
    copies = dataclasses.replace(plan, launches=plan.launches[:1])
    vars(copies)["_forward"] = plan._forward
    copies.execute(None, views, (operands["out"], None), "", 0, workspace)
    runtime.synchronize()
    clock_mhz = round(props.peak_clock_ghz * 1e3)
    with virtual.profile(clock_mhz=clock_mhz) as profile:
        plan.execute(None, views, (operands["out"], None), "", 0, workspace)
        runtime.synchronize()
    us = [launch.cycles / clock_mhz for launch in profile.launches[1:]]
    return sum(us) + props.architecture.launch_us * (len(us) - 1)


@pytest.mark.device
def test_no_number_of_parts_is_much_faster():
    """64 workgroups that see 4096 keys each: when no tile was cut, 2.5 times the best."""
    shape, page_size = (8, 64, 4096, 8, 1), 64
    times = {n: attention_us(problem(shape, page_size, n)) for n in (0, 2, 4)}
    assert times[0] <= BAR * min(times.values()), times
