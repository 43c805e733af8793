"""Every operation of the registry in JAX: its own cases, held to its own references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import amdattn.jax as aj
from amdattn.jax.encoding import Signature
from amdattn.jax.rules import _HOME, rules
from amdattn.ops import registry

_OF_EACH = 12


def cases() -> Iterator[Any]:
    for operation in registry.operations():
        every = list(operation.cases(None))
        for i, case in enumerate(every[:: max(1, len(every) // _OF_EACH)]):
            yield pytest.param(operation, case, id=f"{operation.name}-{i}-{case.title}")


@pytest.mark.parametrize(("operation", "case"), cases())
def test_case(operation: Any, case: Any) -> None:
    inputs = case.inputs(7)
    signature = Signature.of(operation.specs(case.problem, case.variant))
    given = [inputs[spec.name] for spec in signature.inputs]
    found = aj.call(operation.name, case.problem, case.variant, *given)
    again = jax.jit(lambda *x: aj.call(operation.name, case.problem, case.variant, *x))(*given)
    expected = operation.reference(case, inputs)
    for spec, result, same in zip(signature.results, found, again, strict=True):
        values = np.asarray(result, np.float64)
        np.testing.assert_array_equal(values, np.asarray(same, np.float64))
        wanted = expected[spec.name]
        finite = np.isfinite(wanted.values)
        np.testing.assert_array_equal(values[~finite], wanted.values[~finite])
        error = np.abs(values - np.where(finite, wanted.values, 0))[finite]
        allowed = np.broadcast_to(wanted.tolerance, values.shape)[finite]
        assert (error <= allowed).all(), spec.name


def test_rules_are_of_operations_that_there_are() -> None:
    assert {*_HOME} - {"padded_attention", "padded_attention_backward"} <= {*registry.names()}


@pytest.mark.parametrize("name", registry.names())
def test_rules_fit_the_operands(name: str) -> None:
    """Axes of every operand, with the lengths that the rules say; parts fit as well."""
    operation, of = registry.operation(name), rules(name)
    for case in list(operation.cases(None))[:40]:
        lengths = dict(of.lengths(case.problem))
        axes = of.axes(case.problem, case.variant)
        for spec in operation.specs(case.problem, case.variant).values():
            if not spec.present or not lengths:
                continue
            found = tuple(
                int(np.prod([lengths[factor] for factor in factors])) for factors in axes[spec.name]
            )
            assert found == spec.shape, (case.title, spec.name)
        for factor in of.independent:
            if factor not in lengths:
                continue
            longer = of.resized(case.problem, {factor: 2 * lengths[factor]})
            assert of.lengths(longer)[factor] == 2 * lengths[factor]
            others = {k: v for k, v in of.lengths(longer).items() if k not in (factor, "sums")}
            assert others == {k: v for k, v in lengths.items() if k in others}
