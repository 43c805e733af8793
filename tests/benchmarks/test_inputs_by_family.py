"""Modelled time of no family of attention depends much on what its inputs hold, at small sizes.

Of the forward kernels by themselves tests/ops/attention/test_time_of_inputs.py holds it; larger
sizes are in docs/studies/times-by-family.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

import pytest

from amdattn.arch.architectures import ARCHITECTURES
from amdattn.ops.cache_attention import cascade_planning as planning
from benchmarks.inputs_by_family import FAMILIES, SINK, Family
from tests.support import shipped
from tests.support.fake_rocm import run

OTHERS = [name for name in ARCHITECTURES if name != shipped.props().arch]
# Beside N(0, 1) without a sink, which is a load more; of few keys, where a renewal costs most.
BARS = {"scores of sd 4": 1.07, "scores rising by 25 nats": 1.04, SINK: 1.11}
_ONE: dict[str, Any] = {"heads_q": 8, "heads_kv": 8}  # a head for each XCD
TILES = "cascade of 128"  # its prefix is of the forward kernels
_OF_CACHES: dict[str, Any] = {"heads_q": 8, "heads_kv": 1, "batch": 2}
SMALL: dict[str, dict[str, Any]] = {
    "causal": {**_ONE, "seqlen_q": 640},
    "window": {**_ONE, "seqlen_q": 640, "window_size": (255, 0)},
    "varlen": _ONE,
    "parts": {**_ONE, "seqlen_q": 128, "seqlen_kv": 1024, "num_splits": 2},
    "narrow": {"heads_q": 8, "heads_kv": 1, "seqlen_q": 320},
    "decode": {**_OF_CACHES, "seqlen_kv": 1024},
    "prefill": {**_OF_CACHES, "seqlen_q": 64, "seqlen_kv": 512},
    "cascade": {**_OF_CACHES, "seqlen_kv": 128, "prefix_len": 512},
    TILES: {**_OF_CACHES, "batch": 16, "seqlen_kv": 64, "prefix_len": 512},
    "cascade of chunks": {**_OF_CACHES, "seqlen_q": 32, "seqlen_kv": 64, "prefix_len": 512},
}


def small(name: str) -> Family:
    """A family at a size that takes a moment."""
    whole = FAMILIES[name]
    sizes = {**whole.sizes, **SMALL[name]}
    return dataclasses.replace(whole, sizes=sizes, lengths=(512, 256, 130) * bool(whole.lengths))


def times(family: Family, *names: str) -> list[float]:
    """Microseconds over classes."""
    return [family.us(name) for name in names]


def times_in_tiles(family: Family, *names: str) -> list[float]:
    """Of the forward kernels over a prefix for which decoding is estimated to be faster."""
    with patch.object(planning, "_least_decoding", return_value=None):
        operations = {launch.kernel.op for launch in family.planned().plan().launches}
        assert {"attn_fwd", "attn_decode"} <= operations
        return times(family, *names)


def too_slow(name: str) -> list[str]:
    """Classes whose time a family does not hold."""
    of_family = times_in_tiles if name == TILES else times
    normal, *others = of_family(small(name), "normal", *BARS)
    found = {of: us / normal for of, us in zip(BARS, others, strict=True)}
    return [f"{of}: {time:.3f}" for of, time in found.items() if time > BARS[of]]


@pytest.mark.parametrize("name", SMALL)
def test_time_does_not_depend_on_inputs(name: str) -> None:
    assert not too_slow(name)


CODE = """
from tests.benchmarks import test_inputs_by_family as test
found = {name: test.too_slow(name) for name in test.SMALL}
print({name: slow for name, slow in found.items() if slow})
"""


@pytest.mark.parametrize("arch", OTHERS)
def test_elsewhere(arch: str) -> None:
    status, lines, errors = run(CODE, AMDATTN_DEVICE=f"virtual:{arch}")
    assert (status, lines) == (0, ["{}"]), errors
