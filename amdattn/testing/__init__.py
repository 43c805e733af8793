"""Reference, tolerance and timing for the package's own tests and `amdattn selftest`."""

from amdattn.ops.attention.reference import attention, attention_rounded
from amdattn.testing.bench import do_bench
from amdattn.testing.tolerance import Comparison, compare, compare_lse

__all__ = [
    "Comparison",
    "attention",
    "attention_rounded",
    "compare",
    "compare_lse",
    "do_bench",
]
