"""Operands of attention over caches from the inputs of benchmarks, as the cache has its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from amdattn.arrays.interchange import asarray
from amdattn.bench.inputs import Inputs, Sizes, entry
from amdattn.ops.cache_attention.cascade_problem import CascadeProblem
from amdattn.ops.cache_attention.decode_problem import DecodeProblem
from amdattn.ops.cache_attention.layouts import LAYOUTS
from amdattn.ops.cache_attention.prefill_problem import PrefillProblem
from amdattn.ops.cache_attention.reference import places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from amdattn.arrays.buffers import DeviceArray
    from amdattn.op.executor import RunnablePlan
    from amdattn.op.spec import Specs


def _over_caches(problem: Any) -> DecodeProblem | None:
    """The problem whose keys are in a cache, of chunks that are equally long; None: it has none."""
    own = problem.own if isinstance(problem, CascadeProblem) else problem
    if isinstance(own, PrefillProblem) and own.is_ragged:
        return None
    return own if isinstance(own, DecodeProblem) else None


def operands(plan: RunnablePlan[Any], inputs: Inputs) -> dict[str, DeviceArray]:
    """Queries, keys and values of a plan on the device, by name; {} if there are none to be made.

    So of operations without a cache, and of chunks of several lengths.
    Keys of a sequence go on through a shared prefix, the cache, and what is appended to it. Indices
    are those that `amdattn.tuning.random_operands` has.

    Raises
    ------
    ValueError
        There are no such inputs of the plan's problem.
    """
    own = _over_caches(plan.problem)
    if own is None:
        return {}
    specs = plan.specs(plan.default_variant)
    prefix = plan.problem.prefix_len if isinstance(plan.problem, CascadeProblem) else 0
    sizes = Sizes(
        *(own.batch, own.seqlen_q, prefix + own.seqlen_kv, own.num_heads_q, own.num_heads_kv),
        *(own.head_dim, own.head_dim_v),
    )
    inputs.check(sizes)
    element = specs["q"].dtype.numpy()
    made: dict[str, NDArray[Any]] = {
        "q": np.stack([entry(inputs, sizes, "q", b).astype(element) for b in range(own.batch)])
    }
    indices = {
        name: spec.typical()
        for name, spec in specs.items()
        if spec.present and spec.typical is not None and spec.dtype.name == "int32"
    }
    for name in "kv":
        made |= _keys(own, specs, indices, name, sizes, prefix, inputs)
    return {name: asarray(array) for name, array in made.items()}


def _keys(
    own: DecodeProblem,
    specs: Specs,
    indices: dict[str, Any],
    name: str,
    sizes: Sizes,
    prefix: int,
    inputs: Inputs,
) -> dict[str, NDArray[Any]]:
    """Of "k" or "v": the cache, and what of a prefix and of new keys is beside it."""
    cache, layout = f"{name}_cache", LAYOUTS[own.kv_layout][f"{name}_cache"]
    of_cache = specs[cache].dtype.numpy()
    rows = np.zeros((own.num_pages, own.page_keys, *sizes.shape(name)[2:]), of_cache)
    lengths = indices.get("cache_seqlens", np.full(own.batch, own.seqlen_kv))
    made, new = {}, []
    for b in range(own.batch):
        every = entry(inputs, sizes, name, b)
        if prefix and b == 0:
            first = every[:prefix]
            if "prefix_table" in indices:
                at = np.arange(prefix)
                pages = indices["prefix_table"][at // own.page_size]
                rows[pages, at % own.page_size] = first.astype(of_cache)
            else:
                made[f"{name}_prefix"] = first.astype(specs["q"].dtype.numpy())
        end = prefix + int(lengths[b])
        rows[places(own, indices, b, end - prefix)] = every[prefix:end].astype(of_cache)
        new.append(every[end : end + own.seqlen_new].astype(specs["q"].dtype.numpy()))
    if own.seqlen_new:
        made[name] = np.stack(new)
    # Kept contiguous: it is copied as it lies.
    return made | {cache: np.ascontiguousarray(layout.of_rows(rows, own.chunk))}
