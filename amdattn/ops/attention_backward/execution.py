"""Plans of gradients of attention that can be run."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, ClassVar

from amdattn import scalars
from amdattn.device.manifest import KernelSpec
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.colocation import view_colocated
from amdattn.op.executor import RunnablePlan
from amdattn.op.plan import Operand
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.attention.alignment import wrong_for_blocks, wrong_for_loads
from amdattn.ops.attention.lengths import SumsOfLengths
from amdattn.ops.attention.problem import axis_order
from amdattn.ops.attention_backward.kernels import BACKWARD
from amdattn.ops.attention_backward.problem import BackwardProblem, layout_of

LABELS = {"o": "out", "cu_seqlens_kv": "cu_seqlens_k"}  # the callers' names of operands
RESULTS = ("dq", "dk", "dv", "dsinks")
_TENSORS = ("dout", "q", "k", "v", "o", "dq", "dk", "dv")
_OF_BLOCKS = {"q": "q_stride_seq", "dout": "q_stride_seq", "k": "kv_stride_seq"}
_OF_BLOCKS |= {"v": "kv_stride_seq"}
_INT32 = as_dtype("int32")


class BackwardPlan(RunnablePlan[BackwardProblem]):
    """A plan that can be run, from `plan_attention_backward`; see `Plan` for its contents."""

    result_names: ClassVar[tuple[str, ...]] = RESULTS
    result_labels: ClassVar[tuple[str, ...]] = RESULTS
    default_variant: ClassVar[str] = "bshd"

    def operands(self, variant: str) -> Specs:
        """Specs of dout, q, k, v, results of the forward and gradients; `variant` is the layout."""
        problem, p = self.problem, self.problem.forward
        layout = layout_of(problem, variant)
        order, element = axis_order(layout), as_dtype(p.dtype)
        of_lse = ("head",) if p.varlen else ("batch", "head")

        def tensor(name: str, role: Any) -> OperandSpec:
            of = element if role == "in" else problem.element
            shape = problem.shape(name, layout)
            partly = p.varlen and role == "out"
            return OperandSpec(name, role, shape, of, order, LABELS.get(name, ""), partly=partly)

        specs = [
            *(tensor(name, "in") for name in ("dout", "q", "k", "v", "o")),
            OperandSpec("lse", "in", p.shape("lse", layout), FLOAT32, of_lse),
            OperandSpec(
                *("sinks", "in", (p.num_heads_q,), FLOAT32, ()),
                present=p.sinks,
                condition="sinks",
                host_check=view_colocated,
            ),
            OperandSpec(
                *("dlse", "in", p.shape("lse", layout), FLOAT32, of_lse),
                present=problem.dlse,
                condition="dlse",
            ),
            *(
                OperandSpec(
                    *(name, "in", (p.batch + 1,), _INT32, (), LABELS.get(name, name)),
                    present=p.varlen,
                    condition="total_q",
                    host_check=SumsOfLengths(total, longest),
                )
                for name, total, longest in (
                    ("cu_seqlens_q", p.total_q, p.seqlen_q),
                    ("cu_seqlens_kv", p.total_kv, p.seqlen_kv),
                )
            ),
            *(tensor(name, "out") for name in ("dq", "dk", "dv")),
            OperandSpec(
                *("dsinks", "out", (p.num_heads_q,), FLOAT32, ()),
                present=p.sinks,
                condition="sinks",
            ),
        ]
        return {spec.name: dataclasses.replace(spec, layout=layout) for spec in specs}

    def misfit(self, spec: OperandSpec, operand: Operand) -> str:
        """The reason why the kernels do not support the address or strides of a tensor, or ""."""
        if spec.name not in _TENSORS:
            return ""
        kernel = self._kernel
        if wrong := wrong_for_loads(operand, kernel):
            return wrong
        if spec.name == "dq" and self.problem.keeps_floats:
            limits = "dq_stride_seq"
        elif spec.name in _OF_BLOCKS:
            limits = _OF_BLOCKS[spec.name]
        else:
            return ""
        return wrong_for_blocks(operand.strides["seq"], spec.shape[-1], kernel, limits)

    @functools.cached_property
    def _kernel(self) -> KernelSpec:
        return next(launch.kernel for launch in self.launches if launch.kernel.op == BACKWARD)

    def run(
        self,
        dout: Any,
        q: Any,
        k: Any,
        v: Any,
        out: Any,
        lse: Any,
        *,
        sinks: Any = None,
        dlse: Any = None,
        cu_seqlens_q: Any = None,
        cu_seqlens_k: Any = None,
        layout: str = "bshd",
        dq: Any = None,
        dk: Any = None,
        dv: Any = None,
        dsinks: Any = None,
        workspace: Any = None,
        stream: Any = None,
    ) -> tuple[Any, ...]:
        """Run the plan on arrays of its shapes.

        Parameters and results are those of `flash_attn_backward`.

        Parameters
        ----------
        workspace : device array, optional
            As in `AttentionPlan.run`.
        """
        axis_order(scalars.word("layout", layout))  # raises for an unknown layout
        given = {"dout": dout, "q": q, "k": k, "v": v, "o": out, "lse": lse, "sinks": sinks}
        given |= {"dlse": dlse, "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_k}
        inputs, handle = self.views_of(given, stream)
        results = self.execute(q, inputs, (dq, dk, dv, dsinks), layout, handle, workspace)
        return results if self.problem.forward.sinks else results[:3]
