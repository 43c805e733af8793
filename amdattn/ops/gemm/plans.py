"""Plans of products, each of which is made once."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from amdattn.arch.props import DeviceProps, as_device_props
from amdattn.device import manifest, runtime
from amdattn.errors import UnsupportedDeviceError, UnsupportedProblem
from amdattn.op.support import Support
from amdattn.ops.gemm import execution, planning, table as gemm_table
from amdattn.ops.gemm.execution import GemmPlan
from amdattn.ops.gemm.problem import GemmProblem


@functools.lru_cache(maxsize=1024, typed=True)
def planned_for(ordinal: int, *facts: Any) -> GemmPlan:
    """The plan of a call, from the fields of a problem and the distance of rows of b."""
    *given, b_stride = facts
    problem = GemmProblem(*given)
    if not problem.reaches_factors(b_stride):
        problem = dataclasses.replace(problem, aligned=False)
    return planned(problem, runtime.get(ordinal).props)


@functools.lru_cache(maxsize=1024)
def planned(problem: GemmProblem, props: DeviceProps) -> GemmPlan:
    """The plan of a product on a device, by its tuned choice if there is one."""
    return execution.planned(problem, props, gemm_table.lookup(problem, props))


def forget_plans() -> None:
    """Plan anew from now on: the user's table has changed."""
    planned_for.cache_clear()
    planned.cache_clear()


def plan_gemm(m: int, n: int, k: int, *, device: DeviceProps | str, **options: Any) -> GemmPlan:
    """Plan a matrix product. No device is queried or bound.

    The plan takes what `amdattn tune gemm` has found for this product, or estimates costs.

    Parameters
    ----------
    m, n, k : int
    device : DeviceProps or str
        `amdattn.device_props()` for the bound device, or a known name such as "MI300X".
    **options
        dtype, out_dtype, bias, alpha, activation, split_k, aligned, deterministic, b_dtype,
        scale_a, scale_b, layout, adds, beta, batch, groups, rms_eps: see `GemmProblem`.

    Raises
    ------
    UnsupportedProblem, UnsupportedDeviceError, ValueError, TypeError
    """
    return planned(GemmProblem(m, n, k, **options), as_device_props(device))


def supports_gemm(m: int, n: int, k: int, *, device: DeviceProps | str, **options: Any) -> Support:
    """Whether a kernel exists for a well-formed product; parameters as `plan_gemm`."""
    problem, props = GemmProblem(m, n, k, **options), as_device_props(device)
    try:
        kernel = planning.choose(problem, props, manifest.kernels()).kernel
    except (UnsupportedProblem, UnsupportedDeviceError) as error:
        return Support(False, str(error))
    return Support(True, f"kernel {kernel.name}")


def explain_gemm(*args: Any, **kwargs: Any) -> str:
    """The text of `plan_gemm(...).explain()`."""
    return plan_gemm(*args, **kwargs).explain()
