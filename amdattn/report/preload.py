"""Compares the bits of kernels with and without their first arguments in SGPRs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from amdattn.arrays.interchange import asarray
from amdattn.device import kernarg_preload, manifest, runtime
from amdattn.device.manifest import KernelSpec
from amdattn.op.operation import Case, Operation
from amdattn.ops.registry import operations
from amdattn.report.rows import INFO, Row, verdict

_QUICK_EVERY, _EVERY = 40, 12  # one of this many kernels is compared
_OFF = f"{kernarg_preload.VARIABLE}=0 turns it off"
Of = tuple[Operation[Any, Any], Case[Any], KernelSpec]


def run(quick: bool) -> Iterator[Row]:
    """Report how many kernels preload, whether it is on, and whether it changes any bit."""
    rows = preloading()
    is_on = runtime.get().kernarg_preload
    state = f"on; {_OFF}" if is_on else f"off, by {kernarg_preload.VARIABLE}"
    yield Row("preloaded arguments", INFO, f"{len(rows)} kernels have them: {state}", {"on": is_on})
    for one in cases(rows[:: _QUICK_EVERY if quick else _EVERY]):
        differing = compare(one)
        yield verdict(one[2].name, differing, f"equal bits without them; {one[1].title}")


def preloading() -> list[KernelSpec]:
    """Kernels for the bound device that preload, among those that operations choose from."""
    arch = runtime.device_props().arch
    chosen = {operation.kernel_ops[0] for operation in operations()}
    return [
        row
        for row in manifest.kernels()
        if row.arch == arch
        and row.op in chosen
        and kernarg_preload.length(row.read_code_object(), row.symbol)
    ]


def cases(rows: Sequence[KernelSpec]) -> Iterator[Of]:
    """A case for each kernel that an operation chooses; other kernels run with those."""
    for operation in operations():
        for row in rows:
            if row.op == operation.kernel_ops[0] and (found := list(operation.cases(row))):
                yield operation, found[-1], row


def compare(one: Of) -> str:
    """The results of a case that differ with and without preload; "" if none does."""
    device = runtime.get()
    before = device.kernarg_preload
    found = []
    try:
        for device.kernarg_preload in (True, False):
            found.append(_digests(*one[:2]))
    finally:
        device.kernarg_preload = before
    on, off = found
    return ", ".join(f"{name} differs" for name in on if on[name] != off[name])


def _digests(operation: Operation[Any, Any], case: Case[Any]) -> dict[str, str]:
    """Digests of every array after a run of its own plan."""
    plan = operation.plan_case(case, runtime.device_props(), manifest.kernels())
    arrays = {name: asarray(x) for name, x in case.inputs(0).items()}
    views, stream = plan.views_of(arrays, None)
    given = (None,) * len(plan.result_names)
    variant = case.variant or plan.default_variant
    made = plan.execute(next(iter(arrays.values())), views, given, variant, stream)
    results = dict(zip(plan.result_names, made, strict=True))
    return {
        name: hashlib.sha256(x.numpy().tobytes()).hexdigest()
        for name, x in {**arrays, **results}.items()
        if x is not None
    }
