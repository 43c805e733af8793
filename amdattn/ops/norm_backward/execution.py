"""Plans for gradients of RMS normalisation that can be run; `amdattn.jax` runs them."""

from __future__ import annotations

from typing import Any, ClassVar

from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.choices import planner
from amdattn.op.executor import RunnablePlan
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.norm_backward import planning
from amdattn.ops.norm_backward.problem import NormBackwardProblem


class NormBackwardPlan(RunnablePlan[NormBackwardProblem]):
    """A plan that can be run; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = ("dx", "dweight")
    result_labels: ClassVar[tuple[str, ...]] = ("dx", "dweight")

    def operands(self, variant: str) -> Specs:
        """dout, x, weight, dresidual_out, and the gradients of x and of the weight."""
        p = self.problem
        rows = (p.all_rows, p.columns), as_dtype(p.dtype), ("row",)
        layout = "rows of all groups x columns"
        specs = (
            OperandSpec("dout", "in", *rows, layout=layout),
            OperandSpec("x", "in", *rows, layout=layout),
            OperandSpec("weight", "in", (p.columns,), p.weight_element, (), layout="columns of x"),
            OperandSpec(
                *("dresidual_out", "in", *rows),
                layout=layout,
                present=p.residual,
                condition="residual",
            ),
            OperandSpec("dx", "out", *rows, layout=layout),
            OperandSpec("dweight", "out", (p.groups, p.columns), FLOAT32, (), layout="by group"),
        )
        return {spec.name: spec for spec in specs}

    def run(
        self,
        dout: Any,
        x: Any,
        weight: Any,
        dresidual_out: Any = None,
        *,
        dx: Any = None,
        dweight: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shapes; results go to `dx` and `dweight`, if given.

        Returns
        -------
        dx : array, like x
            The gradient of x, and of a residual that was added to it.
        dweight : array, float32, (groups, columns)
        """
        given = {"dout": dout, "x": x, "weight": weight, "dresidual_out": dresidual_out}
        views, handle = self.views_of(given, stream)
        return self.execute(x, views, (dx, dweight), "", handle)


planned = planner(planning, NormBackwardPlan, planning.best)
