"""The package's own matrix products as a benchmark runs them."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import amdattn
from amdattn.bench.kernels import Launch
from amdattn.bench.modelled import Modelled, profiled, simulated
from amdattn.bench.record import MEASURED, MODELLED, Record
from amdattn.bench.run import Outcome, is_virtual, modelled_record, settled, timed_record
from amdattn.device import runtime
from amdattn.tuning import random_operands

if TYPE_CHECKING:
    from amdattn.ops.gemm.problem import GemmProblem

_OPERATION = "gemm"


@dataclass(frozen=True)
class Product:
    """A product of one size, planned for the bound device."""

    problem: GemmProblem

    def __str__(self) -> str:
        p = self.problem
        text = f"m{p.m} n{p.n} k{p.k}" + f" {p.dtype}" * (p.dtype != "bfloat16")
        text += f" to {p.out_dtype}" * (p.out_dtype != p.dtype) + " bias" * p.bias
        text += f" {p.activation}" * (p.activation is not None)
        text += f" split_k={p.split_k}" * (p.split_k > 0)
        return text + " any order" * (not p.deterministic)

    def plan(self) -> amdattn.GemmPlan:
        """What `gemm_nt` would run; raises UnsupportedProblem if there is nothing."""
        options = dataclasses.asdict(self.problem)
        sizes = [options.pop(name) for name in "mnk"]
        return amdattn.plan_gemm(*sizes, device=runtime.device_props(), **options)

    def compared(self, outcome: Outcome) -> Outcome:
        """The outcome of a code object as one of this product, so that both are in one table."""
        record = outcome.record
        part = "first_workgroups" in record.sampled  # of which no rate can be stated
        named = dataclasses.replace(
            record, shape=str(self), flops=record.flops or self.problem.flops * (not part)
        )
        return dataclasses.replace(outcome, record=named)


def run_gemm(product: Product, *, clock_mhz: int = 0, trace_events: int = 0) -> Outcome:
    """Model or measure one product, on random operands.

    Parameters
    ----------
    clock_mhz : int
        Assumed sustained clock; 0: the architecture's.
    """
    plan = product.plan()
    is_modelled = is_virtual()
    blank = Record(
        _OPERATION,
        str(product),
        dataclasses.asdict(product.problem),
        "amdattn",
        "",
        MODELLED if is_modelled else MEASURED,
        flops=product.problem.flops,
    )
    workspace = plan.new_workspace() if plan.workspace.regions else None
    operands = random_operands(product.problem)
    run = functools.partial(plan.run, **operands, workspace=workspace)
    (planned,) = plan.launches
    kernel = planned.kernel
    # As the record names it; its arguments are those of the run.
    launch = Launch(
        kernel.read_code_object(), kernel.symbol, planned.grid, kernel.workgroup, kernarg=b""
    )
    if not is_modelled:
        return Outcome(timed_record(blank, [launch], run))

    def model(mhz: int, events: int = 0) -> Modelled:
        (profile,) = profiled(run, clock_mhz=mhz, trace_events=events)
        return simulated(launch, profile)

    modelled = model(clock_mhz, trace_events)
    record = modelled_record(blank, modelled)
    if record.short:
        record = settled(record, lambda mhz: model(mhz).activity)
    return Outcome(record, modelled)
