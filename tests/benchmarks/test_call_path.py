"""A warm call goes a short way through the package."""

from __future__ import annotations

from amdattn.arrays import memory
from benchmarks import call_path

MOST_FILES, MOST_CHANGES = 12, 60


def test_a_warm_call_of_attention_goes_through_few_files() -> None:
    with memory.caching(on=True):
        found = call_path.path_of(call_path.attention())
    assert {step.function for step in found.steps} >= {"flash_attn_func", "execute", "submit"}
    assert len(found.files) <= MOST_FILES
    assert found.changes <= MOST_CHANGES
