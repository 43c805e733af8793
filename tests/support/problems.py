"""Random problems of attention and of products: the one place that sweeps draw from.

Hypothesis strategies where an example is to be made small; plain draws from a `random.Random` where
the same seed must give the same problems, whatever hypothesis is installed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from amdattn.ops.attention.problem import AttentionProblem

Call = dict[str, Any]
Range = tuple[int, int]

# -- problems for planners, always well-formed -----------------------------------------------------

SIDES = st.one_of(st.just(-1), st.integers(0, 700))
WINDOWS = st.one_of(st.just((-1, -1)), st.tuples(SIDES, SIDES), st.just((64, 0)))


def attention_problems(
    *,
    batch: Range,
    seqlen_q: Range,
    seqlen_kv: Range,
    heads_kv: Range,
    group: st.SearchStrategy[int],
    **options: st.SearchStrategy[Any],
) -> st.SearchStrategy[AttentionProblem]:
    """Attention of head size 128 with sizes in these ranges, and options as they are drawn."""
    sizes = (st.integers(*each) for each in (batch, seqlen_q, seqlen_kv, heads_kv))
    return st.builds(
        lambda batch, rows, keys, heads, group, options: AttentionProblem(
            batch, rows, keys, heads * group, heads, 128, **options
        ),
        *sizes,
        group,
        st.fixed_dictionaries(options),
    )


# -- calls that are computed -----------------------------------------------------------------------

FAMILY = [
    (dtype, *dims, mode)
    for dims in ((128, 128), (64, 64), (192, 128))
    for dtype, modes in (("bfloat16", ("rtne", "rtna", "rtz")), ("float16", ("rtne",)))
    for mode in modes
]
LENGTHS = st.one_of(
    st.integers(1, 600), st.sampled_from([1, 31, 32, 33, 64, 255, 256, 257, 384, 385, 512, 513])
)
ATTENTION_CALLS = st.fixed_dictionaries(
    {
        "member": st.sampled_from(FAMILY),
        "heads": st.tuples(st.integers(1, 3), st.sampled_from([1, 2, 4])),
        "lengths": st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=3),
        "causal": st.booleans(),
        "window_size": st.tuples(SIDES, SIDES),
        "top_left": st.booleans(),
        "num_splits": st.sampled_from([0, 0, 1, 2, 3, 7, 16]),
        "sinks": st.booleans(),
        "varlen": st.booleans(),
        "layout": st.sampled_from(["bshd", "bhsd"]),
        "seed": st.integers(0, 2**32 - 1),
    }
)


def products(
    seed: int,
    number: int,
    most: tuple[int, int, int],
    options: Callable[[np.random.Generator], Call],
    multiples_of_k: tuple[int, ...] = (),
) -> Iterator[tuple[int, int, int, Call]]:
    """m, n and k from 1 to less than `most`, k rounded up to one of the multiples, and options."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        m, n, k = (int(x) for x in rng.integers(1, most))
        if multiples_of_k:
            k += (-k) % int(rng.choice(multiples_of_k))
        yield m, n, k, options(rng)


# -- arguments of plans: usual, odd, and such as are refused ---------------------------------------

_LENGTHS = (1, 2, 7, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 1000, 1024, 2048, 4096, 16384)


def _length(chance: random.Random) -> int:
    if chance.random() < 0.7:
        return chance.choice(_LENGTHS)
    return round(2 ** chance.uniform(0, 20))


def _some(chance: random.Random, options: dict[str, tuple[float, Callable[[], Any]]]) -> Call:
    """Each option with its probability."""
    return {name: value() for name, (odds, value) in options.items() if chance.random() < odds}


def attention_arguments(chance: random.Random) -> Call:
    """Arguments of an attention plan."""
    heads_kv = chance.choice((1, 2, 4, 8, 8, 16, 32))
    q, kv = _length(chance), _length(chance)
    if chance.random() < 0.5:
        kv = q
    batch = chance.choice((1, 1, 2, 3, 4, 8, 16, 64))
    dim = chance.choice((64, 64, 128, 128, 128, 192, 256, 8, 40, 72, 96, 120, 4, 260))
    sizes = {
        "batch": batch,
        "seqlen_q": q,
        "seqlen_kv": kv,
        "num_heads_q": round(heads_kv * chance.choice((1, 1, 2, 4, 5, 8, 1.5))),
        "num_heads_kv": heads_kv,
        "head_dim": dim,
    }
    options = {
        "causal": (0.5, lambda: True),
        "dtype": (0.3, lambda: chance.choice(("float16", "float16", "bfloat16", "float32"))),
        "head_dim_v": (0.2, lambda: chance.choice((64, 128, dim, 32))),
        "softmax_scale": (0.2, lambda: chance.choice((0.1, 1.0, 0.0, -0.5))),
        "window_size": (0.25, lambda: (chance.choice((-1, 0, 127, 4095)), chance.choice((-1, 0)))),
        "softcap": (0.15, lambda: chance.choice((30.0, 50.0, -1.0))),
        "round_mode": (0.3, lambda: chance.choice(("rtne", "rtna", "rtz", "up"))),
        "num_splits": (0.3, lambda: chance.choice((1, 2, 3, 8, 17, 1000, -1))),
        "return_lse": (0.3, lambda: True),
        "top_left": (0.1, lambda: True),
        "sinks": (0.15, lambda: True),
        "total_q": (0.15, lambda: chance.randrange(1, batch * q + 2)),
    }
    found = _some(chance, options)
    if "total_q" in found:
        found["total_kv"] = chance.randrange(1, batch * kv + 2)
    return sizes | found


def gemm_arguments(chance: random.Random) -> Call:
    """Arguments of a product's plan."""
    options = {
        "dtype": (0.3, lambda: chance.choice(("float16", "float16", "bfloat16", "float32"))),
        "out_dtype": (0.3, lambda: chance.choice(("float16", "bfloat16", "float32"))),
        "bias": (0.3, lambda: True),
        "alpha": (0.2, lambda: chance.choice((0.5, 2.0))),
        "activation": (0.3, lambda: chance.choice(("silu", "gelu", "silu_and_mul", "relu"))),
        "split_k": (0.3, lambda: chance.choice((1, 2, 4, 7, 64, 1000, -1))),
        "aligned": (0.2, lambda: False),
        "deterministic": (0.2, lambda: False),
    }
    m = chance.choice((1, 2, 3, 4, 8, 16, 17, 32, 64, 65, 128, 256, 1000))
    n, k = (chance.choice((1, 2, 64, 512, 1000, 2048, 2880, 4096, 7168, 28672)) for _ in "nk")
    return {"m": m, "n": n, "k": k} | _some(chance, options)
