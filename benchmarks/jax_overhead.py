"""What a call from JAX costs on this CPU, on a device that executes nothing.

It is compared with a jitted function of as many operands that returns one of them, which takes less
than any program with a result. They are measured in turns, so that a busy moment affects all of
them. The contents of arrays do not matter.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

import amdattn
import amdattn.jax as aj
from amdattn import virtual

_ROUNDS, _CALLS = 15, 1000


def microseconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Of a call, of so many in a row."""
    begin = time.perf_counter()
    for _ in range(_CALLS):
        found = function(*arguments)
    jax.block_until_ready(found)
    return (time.perf_counter() - begin) / _CALLS * 1e6


def measured() -> dict[str, list[float]]:
    """Microseconds of a call, round by round, by what is called."""
    q = jax.random.normal(jax.random.key(0), (1, 16, 4, 64), jnp.bfloat16)
    calls: dict[str, Callable[..., Any]] = {
        "jitted, nothing": jax.jit(lambda q, k, v: q),
        "jitted, adds 1": jax.jit(lambda q, k, v: q + 1),
        "jitted, flash_attn_func": jax.jit(aj.flash_attn_func),
        "flash_attn_func": aj.flash_attn_func,
        "dot_product_attention": aj.dot_product_attention,
    }
    for call in calls.values():
        jax.block_until_ready(call(q, q, q))
    amdattn.device_props()
    virtual.set_option("null", 2)  # launches end inside of their calls
    try:
        rounds = [
            {name: microseconds(call, q, q, q) for name, call in calls.items()}
            for _ in range(_ROUNDS)
        ]
    finally:
        virtual.set_option("null", 0)
    return {name: [each[name] for each in rounds] for name in calls}


def main() -> None:
    """Print a table."""
    table = Table(
        title=f"measured on this CPU, {_ROUNDS} rounds of {_CALLS} calls, JAX {jax.__version__}"
    )
    for column in ("call", "us, least", "us, median", "beyond nothing, median"):
        table.add_column(column, justify="left" if column == "call" else "right")
    found = measured()
    base = found["jitted, nothing"]
    for name, times in found.items():
        beyond = statistics.median(x - y for x, y in zip(times, base, strict=True))
        table.add_row(name, f"{min(times):.1f}", f"{statistics.median(times):.1f}", f"{beyond:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
