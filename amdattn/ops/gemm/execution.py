"""Plans of matrix products that can be run."""

from __future__ import annotations

from typing import Any

from amdattn.arch.props import DeviceProps
from amdattn.arrays.views import View
from amdattn.device import manifest
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.executor import RunnablePlan
from amdattn.op.plan import Operand
from amdattn.op.spec import HostCheck, OperandSpec, Specs
from amdattn.ops.gemm import grids, planning
from amdattn.ops.gemm.groups import AsGroupSizes
from amdattn.ops.gemm.problem import ADDENDS, MAX_REACH, WORD_BYTES, GemmProblem
from amdattn.ops.gemm.scales import AsMxScales, AsScales, mx_scales_misfit, scales_misfit
from amdattn.ops.gemm.table import Tuned

_LAYOUT = "m, n, k of the plan"
_INT32, _UINT8 = as_dtype("int32"), as_dtype("uint8")


class GemmPlan(RunnablePlan[GemmProblem]):
    """A plan that can be run. Made by `plan_gemm`; see `Plan` for what it holds."""

    _tuned: Tuned | None = None

    def __getattr__(self, name: str) -> Any:
        if name != "reasons":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        rows = manifest.kernels()
        found = planning.plan_gemm(self.problem, self.props, rows, self._tuned).reasons
        self.__dict__[name] = found
        return found

    @property
    def kernel(self) -> KernelSpec:
        """The member that was chosen."""
        return self.launches[0].kernel

    @property
    def splits(self) -> int:
        """Parts along k."""
        return grids.splits_of(self.problem, self.kernel, self.launches[0].grid)

    def operands(self, variant: str) -> Specs:
        """A, b and the optional operands, in the order of `run`."""
        p = self.problem
        shapes, batch = p.input_shapes, ("batch",)
        rows = (*batch[: len(p.of_rows)], "row")
        rows_of_b = (*batch[: len(p.of_columns)], "row")
        rows_of_out = (*batch[: len(p.of_results)], "row")
        element, element_of_b = as_dtype(p.array_dtype), as_dtype(p.array_dtype)
        if not p.is_packed:
            element_of_b = as_dtype(p.b_dtype)
        of_scales = _UINT8 if p.is_mx else FLOAT32
        out_element = as_dtype(p.out_dtype)
        sizes = AsGroupSizes(p.groups, p.k if p.groups_share_k else p.m)
        specs = (
            OperandSpec("a", "in", shapes["a"], element, rows, layout=_LAYOUT),
            OperandSpec(
                *("b", "in", shapes["b"], element_of_b),
                rows_of_b,
                layout=_LAYOUT,
            ),
            OperandSpec(
                *("bias", "in", shapes.get("bias", ()), as_dtype(p.bias_dtype)),
                batch[: len(p.of_columns)],
                present=p.bias,
                condition="bias",
                layout=_LAYOUT,
            ),
            *(
                OperandSpec(
                    *(name, "in", shapes.get(name, ()), of_scales, axes * p.scales_have_rows),
                    present=name in shapes,
                    condition=name,
                    host_check=_read_scales(p, count),
                    layout=_LAYOUT,
                )
                for name, count, axes in (
                    ("scale_a", (*p.of_rows, p.m), rows),
                    ("scale_b", (*p.of_columns, p.b_rows), rows_of_b),
                )
            ),
            *(
                OperandSpec(
                    *(name, "in", p.out_shape, out_element, rows_of_out),
                    present=p.adds == name,
                    condition="adds",
                    layout=_LAYOUT,
                )
                for name in ADDENDS
            ),
            OperandSpec(
                *("group_sizes", "in", (p.groups,), _INT32, ()),
                present=p.groups > 0,
                condition="groups",
                host_check=sizes,
                typical=sizes.even,
            ),
            OperandSpec(
                *("out", "out", p.out_shape, out_element, rows_of_out),
                layout=_LAYOUT,
                partly=p.groups > 0 and not p.groups_share_k,
            ),
        )
        return {spec.name: spec for spec in specs}

    @property
    def overwritten(self) -> frozenset[str]:
        """The array that is added to results may be overwritten by them."""
        return frozenset() if self.problem.adds is None else frozenset({self.problem.adds})

    def operand(self, spec: OperandSpec, view: View) -> Operand:
        """The address, and the distances of rows and batches, 0 if there is only one."""
        axes = zip(spec.axes, view.strides, view.shape, strict=False)
        return Operand(view.address, {name: step if n > 1 else 0 for name, step, n in axes})

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """The reason why the kernel cannot take the address or row stride of a or b."""
        if spec.name.startswith("scale") and self.problem.has_blocks:
            return scales_misfit(operand)
        if spec.name.startswith("scale") and self.problem.is_mx:
            factors = self.problem.n if spec.name == "scale_b" and self.problem.has_factors else 0
            return mx_scales_misfit(operand, factors)
        if spec.name not in ("a", "b"):
            return ""
        wrong = misalignment(operand, self.kernel) or self._overlap(spec, operand)
        if spec.name == "b" and not wrong:
            wrong = self._beyond_reach(operand)
        return wrong and f"{wrong} for kernel {self.kernel.name}; plan with aligned=False"

    @property
    def _takes_any_distance(self) -> bool:
        align: int = self.kernel.accepts["pointer_align_bytes"]
        return align <= WORD_BYTES

    def _overlap(self, spec: OperandSpec, operand: Operand) -> str:
        """Arrays stored by k end with their last row, so all other rows must end before it."""
        stride = operand.strides["row"]
        is_by_k = self.problem.by_k["ab".index(spec.name)]
        rows, columns = spec.shape[-2:]
        if not is_by_k or rows == 1 or stride >= columns or self._takes_any_distance:
            return ""
        return f"row stride {stride}, which must be at least {columns}"

    def _beyond_reach(self, b: Operand) -> str:
        stride = b.strides["row"]
        if self._takes_any_distance or self.problem.reaches_factors(stride):
            return ""
        return f"row stride {stride}, which puts factors {MAX_REACH} bytes or more from their rows"

    def run(
        self,
        a: Any,
        b: Any,
        out: Any = None,
        bias: Any = None,
        scale_a: Any = None,
        scale_b: Any = None,
        c: Any = None,
        residual: Any = None,
        group_sizes: Any = None,
        *,
        workspace: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shapes; parameters and result as `gemm` or `grouped_gemm`.

        Parameters
        ----------
        workspace : device array, optional
            Made by `new_workspace`, or a compact array of at least ``plan.workspace.total_bytes``
            bytes whose counters are 0, and whose partial sums are 0 if the plan is not
            deterministic. A run leaves them 0. After a run that was aborted or faulted, the next
            run resets them; for graphs, the wait that reports the failure does (see
            `clear_workspace`). Runs at the same time need separate workspaces. While a graph is
            captured, a plan with a workspace needs one from the caller; plans with other counters
            cannot use it afterwards.
        """
        views, handle = self.views_of(
            {
                **{"a": a, "b": b, "bias": bias, "scale_a": scale_a, "scale_b": scale_b},
                **{"c": c, "residual": residual, "group_sizes": group_sizes},
            },
            stream,
        )
        (result,) = self.execute(a, views, (out,), "", handle, workspace)
        return result


def _read_scales(problem: GemmProblem, rows: tuple[int, ...]) -> HostCheck | None:
    if problem.is_mx:
        return AsMxScales()
    return None if problem.has_blocks else AsScales(rows)


def planned(problem: GemmProblem, props: DeviceProps, tuned: Tuned | None) -> GemmPlan:
    """The plan of `planning.plan_gemm`; its reasons are computed when they are asked for."""
    choice = planning.choose(problem, props, manifest.kernels(), tuned)
    plan = GemmPlan.of(planning.unexplained(problem, props, choice))
    del plan.__dict__["reasons"]
    plan.__dict__["_tuned"] = tuned
    return plan


def misalignment(operand: Operand, kernel: KernelSpec) -> str:
    """The reason why the kernel cannot take the address or row stride of a or b, or ""."""
    align = kernel.accepts["pointer_align_bytes"]
    if operand.address % align:
        return f"address {operand.address:#x}, which must be a multiple of {align} bytes"
    stride = operand.strides["row"]
    multiple, (least, most) = kernel.accepts["stride_multiple"], kernel.accepts["row_stride"]
    batch = operand.strides.get("batch", 0)
    if batch % multiple:
        return f"batch stride {batch}, which must be a multiple of {multiple} elements"
    if stride % multiple or not least <= stride <= most:
        allowed = f"a multiple of {multiple} in {least}..{most} elements"
        return f"row stride {stride}, which must be {allowed}"
    return ""
