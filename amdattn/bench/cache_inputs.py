"""Operands of attention over caches, made from the inputs of benchmarks in the cache's layout."""

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
    """The problem whose keys are in a cache; None if there is none or its chunks are ragged."""
    own = problem.own if isinstance(problem, CascadeProblem) else problem
    if isinstance(own, PrefillProblem) and own.is_ragged:
        return None
    return own if isinstance(own, DecodeProblem) else None


def operands(plan: RunnablePlan[Any], inputs: Inputs) -> dict[str, DeviceArray]:
    """Make the queries, keys and values of a plan on the device.

    The keys of a sequence continue through a shared prefix, the cache and the rows that are
    appended to it. Indices are those of `amdattn.tuning.random_operands`.

    Parameters
    ----------
    plan : RunnablePlan
        A plan of attention over a cache.
    inputs : Inputs
        Contents of q, k and v.

    Returns
    -------
    dict of str to DeviceArray
        By operand, with the shapes and dtypes of the plan's specs. Empty for operations without a
        cache and for chunks of several lengths.

    Raises
    ------
    ValueError
        `inputs` cannot fill a problem of this size.
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
    """Rows of "k" or "v": the cache, and the prefix and the new rows that are outside of it."""
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
    # Contiguous, because it is copied as it is in memory.
    return made | {cache: np.ascontiguousarray(layout.of_rows(rows, own.chunk))}
