"""Tests every operation on the bound device against its float64 reference, at odd sizes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from amdattn.arrays.interchange import asarray
from amdattn.device import manifest, runtime
from amdattn.op.comparison import Comparison, judge
from amdattn.op.operation import Case, Operation
from amdattn.ops.registry import operations

Any_ = Operation[Any, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one case.

    Attributes
    ----------
    operation : Operation
    case : Case
    results : dict of str to Comparison
        By the names by which callers know results.
    seconds : float
        Wall time of the call, copies included.
    digest : str
        SHA-256 of all results.
    """

    operation: Any_
    case: Case[Any]
    results: dict[str, Comparison]
    seconds: float
    digest: str

    @property
    def ok(self) -> bool:
        """Whether all results are within their tolerances."""
        return all(self.results.values())

    @property
    def reason(self) -> str:
        """The reason why the first wrong result is wrong; "" if there is none."""
        return next((found.reason for found in self.results.values() if not found), "")


def run_case(operation: Any_, case: Case[Any], seed: int = 0) -> Result:
    """Run one case on the bound device, from host arrays unless some are written in place."""
    props = runtime.device_props()
    plan = operation.plan_case(case, props, manifest.kernels())
    inputs: dict[str, Any] = case.inputs(seed)
    must_be = operation.reference(case, inputs)
    specs = plan.specs(case.variant)
    in_place = [name for name in inputs if specs[name].role == "inout"]
    if in_place:
        inputs = {name: asarray(x) for name, x in inputs.items()}
    start = time.perf_counter()
    views, stream = plan.views_of(inputs, None)
    first = next(iter(inputs.values()))
    given = (None,) * len(plan.result_names)
    found = plan.execute(first, views, given, case.variant or plan.default_variant, stream)
    seconds = time.perf_counter() - start
    results = dict(zip(plan.result_names, found, strict=True))
    results |= {name: inputs[name] for name in in_place}
    if in_place:
        results = {name: None if x is None else x.numpy() for name, x in results.items()}
    labels = {name: specs[name].title for name in results}
    return Result(
        operation,
        case,
        {
            labels[name]: judge(results[name], must.values, must.tolerance, 0.0)
            for name, must in must_be.items()
        },
        seconds,
        _digest(results),
    )


def _digest(results: dict[str, Any]) -> str:
    whole = hashlib.sha256()
    for name, result in results.items():
        if result is not None:
            whole.update(name.encode() + np.ascontiguousarray(result).tobytes())
    return whole.hexdigest()


def cases() -> Iterator[tuple[Any_, Case[Any]]]:
    """The general cases of every operation that has kernels for the bound device."""
    arch = runtime.device_props().arch
    shipped = {row.op for row in manifest.kernels() if row.arch == arch}
    for operation in operations():
        if operation.kernel_ops[0] in shipped:
            for case in operation.cases(None):
                yield operation, case
