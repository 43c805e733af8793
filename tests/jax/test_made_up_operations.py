"""An operation that there is not: a cache that is appended to in place, without rules."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import amdattn
import amdattn.jax as aj
from amdattn.device import manifest
from amdattn.dtypes import as_dtype
from amdattn.jax import rules, targets
from amdattn.jax.encoding import Signature
from amdattn.op.executor import RunnablePlan
from amdattn.op.plan import Address, Launch, Plan
from amdattn.op.spec import OperandSpec, Specs
from amdattn.op.workspace import Region, WorkspaceLayout
from amdattn.ops import registry

BF16 = as_dtype("bfloat16")
COLUMNS = 64


@dataclass(frozen=True)
class Append:
    """The first `rows` rows of the cache become those of `new`."""

    rows: int
    brief: str = "append"
    text: str = "append"


class AppendPlan(RunnablePlan[Append]):
    def operands(self, variant: str) -> Specs:
        rows = self.problem.rows
        specs = (
            OperandSpec("new", "in", (rows, COLUMNS), BF16, ("row",)),
            OperandSpec("cache", "inout", (8, COLUMNS), BF16, ("row",)),
            OperandSpec("copy", "out", (rows, COLUMNS), BF16, ("row",)),
        )
        return {spec.name: spec for spec in specs}


def planned(problem: Append, props: Any) -> AppendPlan:
    """Through a region of scratch memory, to the cache and to a result."""
    (kernel, *_) = manifest.candidates(manifest.kernels(), "gather_rows", props)

    def copied(source: str, target: str) -> Launch:
        args = {name: 0 for name, *_ in kernel.kernarg.fields}
        given = {"from": Address(source), "to": Address(target), "stride_seq": COLUMNS}
        given |= {"seqlen": problem.rows, "columns": COLUMNS}
        return Launch(kernel, (1, 1, 1), tuple((args | given).items()), frozenset({target}))

    layout = WorkspaceLayout.of(
        [Region("counters", 64, "zero_at_rest"), Region("scratch", problem.rows * COLUMNS * 2)]
    )
    launches = (copied("new", "scratch"), copied("scratch", "cache"), copied("scratch", "copy"))
    return AppendPlan.of(Plan(problem, props, launches, layout, ()))


@pytest.fixture
def append(monkeypatch: pytest.MonkeyPatch) -> Any:
    props = amdattn.device_props()

    def specs(problem: Append, variant: str = "") -> Specs:
        return AppendPlan.of(Plan(problem, props, (), WorkspaceLayout(), ())).specs(variant)

    operation = SimpleNamespace(name="append", specs=specs, planned=planned)
    before = registry.operation
    monkeypatch.setattr(
        registry, "operation", lambda name: operation if name == "append" else before(name)
    )
    rules.rules.cache_clear()
    jax.ffi.register_ffi_target(
        targets.target_name("append"), targets.handler(targets.PLATFORMS[0]), platform="cpu"
    )
    yield lambda new, cache: aj.call("append", Append(new.shape[0]), "", new, cache)
    rules.rules.cache_clear()


def test_written_in_place(append: Any) -> None:
    new = jax.random.normal(jax.random.key(0), (3, COLUMNS), jnp.bfloat16)
    cache = jnp.ones((8, COLUMNS), jnp.bfloat16)
    expected = np.concatenate([np.asarray(new), np.ones((5, COLUMNS), BF16.numpy())])
    copy, after = jax.jit(append)(new, cache)
    np.testing.assert_array_equal(copy, new)
    np.testing.assert_array_equal(after, expected)
    np.testing.assert_array_equal(cache, 1)  # not donated: XLA has copied it
    step = jax.jit(append, donate_argnums=1)
    text = step.lower(new, cache).compile().as_text()
    assert "output_to_operand_aliasing" in text and "input_output_alias" in text
    address = cache.unsafe_buffer_pointer()
    copy, after = step(new, cache)
    np.testing.assert_array_equal(after, expected)
    assert after.unsafe_buffer_pointer() == address and cache.is_deleted()


def test_in_a_loop_and_mapped(append: Any) -> None:
    news = jax.random.normal(jax.random.key(0), (4, 3, COLUMNS), jnp.bfloat16)
    cache = jnp.ones((8, COLUMNS), jnp.bfloat16)

    def step(cache: Any, new: Any) -> Any:
        copy, after = append(new, cache)
        return after, copy

    after, copies = jax.lax.scan(step, cache, news)
    np.testing.assert_array_equal(copies, news)
    np.testing.assert_array_equal(after[:3], news[-1])
    copies, caches = jax.vmap(append, in_axes=(0, None))(news, cache)  # one after the other
    np.testing.assert_array_equal(copies, news)
    np.testing.assert_array_equal(caches[:, :3], news)
    np.testing.assert_array_equal(caches[:, 3:], 1)


def test_signature() -> None:
    specs = AppendPlan.of(
        Plan(Append(3), amdattn.device_props(), (), WorkspaceLayout(), ())
    ).specs()
    found = Signature.of(specs)
    assert [spec.name for spec in found.inputs] == ["new", "cache"]
    assert [spec.name for spec in found.results] == ["copy", "cache"]
    assert found.aliases == ((1, 1),)
