"""Gradients of rows normalised with all options: checks, plans and runs."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

from amdattn.arrays.interchange import as_view
from amdattn.device import runtime
from amdattn.dtypes import FLOAT32, as_dtype
from amdattn.op.choices import planner
from amdattn.op.executor import RunnablePlan
from amdattn.op.spec import OperandSpec, Specs
from amdattn.ops.layer_norm.layer_norm import state_of
from amdattn.ops.layer_norm_backward import planning
from amdattn.ops.layer_norm_backward.problem import LayerNormBackwardProblem

_LAYOUT = "rows of all groups x columns"


def layer_norm_backward(
    dout: Any,
    x: Any,
    weight: Any,
    dresidual_out: Any = None,
    eps: float = 1e-5,
    *,
    bias: bool = True,
    rms: bool = False,
    dropout_p: float = 0.0,
    seed: int = 0,
    state: Any = None,
    behind: int = 1,
    workspace: Any = None,
    stream: Any = None,
) -> tuple[Any, ...]:
    """Compute gradients of `layer_norm`, or of `rms_norm`, for results of the type of x.

    Parameters
    ----------
    dout : array, bfloat16 or float16, (rows, columns)
        The gradient of the result.
    x : array, like dout
        The x of the forward pass; with a residual, the sum that it returned.
    weight : array, like x or float32, (columns,)
    dresidual_out : array, like x, optional
        The gradient of that sum, which is needed if and only if there was a residual.
    eps, dropout_p, seed, state
        The arguments of the forward pass, from which the mask is drawn again. The state is not
        changed.
    bias, rms : bool
        Whether the bias has a gradient; whether no mean was subtracted.
    behind : int
        The number of calls that have advanced the state since the forward pass began: 1, that pass
        alone, by default; 0 for a copy that was made before it.
    workspace : device array, optional
        An array of ``plan.workspace.total_bytes`` bytes, which is overwritten.
    stream : hipStream_t, optional

    Returns
    -------
    dx : array, like x
    dresidual : array, like x
        Only with a residual; without dropout it is `dx` itself.
    dweight : array, float32, (columns,)
    dbias : array, float32, (columns,)
        Only with `bias`.

    Raises
    ------
    UnsupportedProblem, ValueError, TypeError, UnsupportedDeviceError, HipError
        As `layer_norm`; rows of more than 16384 columns have no kernel.
    """
    handle = runtime.stream_handle(stream)
    given = {"dout": dout, "x": x, "weight": weight, "dresidual_out": dresidual_out}
    views = {name: as_view(y, name, handle) for name, y in given.items() if y is not None}
    view = views["x"]
    if len(view.shape) != 2 or 0 in view.shape:
        raise ValueError(f"x has shape {view.shape}; it must be (rows, columns), neither 0")
    residual = dresidual_out is not None
    facts = view.dtype.name, bias, residual, eps, views["weight"].dtype.name, dropout_p, rms
    plan = _planned_for(runtime.get(view.ordinal).ordinal, *view.shape, *facts, behind)
    if plan.problem.draws:
        if state is None and behind != 1:
            raise ValueError(f"behind={behind} must be 1 without state")
        made = state_of(seed, 1, view.on_device) if state is None else state
        views["state"] = as_view(made, "state", handle)
    inputs = tuple(views[name] for name in plan.input_names)
    dx, dresidual, sums = plan.execute(x, inputs, (None,) * 3, "", handle, workspace)
    found = (dx, dresidual if plan.problem.splits else dx) if residual else (dx,)
    return (*found, *(sums[0, i] for i in range(1 + bias)))


@functools.lru_cache(maxsize=1024, typed=True)
def _planned_for(ordinal: int, rows: int, columns: int, *facts: Any) -> LayerNormBackwardPlan:
    problem = LayerNormBackwardProblem(1, rows, columns, *facts)
    return planned(problem, runtime.get(ordinal).props)


class LayerNormBackwardPlan(RunnablePlan[LayerNormBackwardProblem]):
    """A plan that can be run; see `Plan` for what it holds."""

    result_names: ClassVar[tuple[str, ...]] = ("dx", "dresidual", "dparameters")
    result_labels: ClassVar[tuple[str, ...]] = ("dx", "dresidual", "dparameters")

    def operands(self, variant: str) -> Specs:
        """dout, x, weight, dresidual_out, the state, and the gradients."""
        p = self.problem
        rows = (p.all_rows, p.columns), as_dtype(p.dtype), ("row",)
        sums = (p.groups, 1 + p.bias, p.columns), FLOAT32, ()
        specs = (
            OperandSpec("dout", "in", *rows, layout=_LAYOUT),
            OperandSpec("x", "in", *rows, layout=_LAYOUT),
            OperandSpec("weight", "in", (p.columns,), p.weight_element, (), layout="columns of x"),
            OperandSpec(
                *("dresidual_out", "in", *rows, "", p.residual, "residual"), layout=_LAYOUT
            ),
            OperandSpec(
                *("state", "in", (4,), as_dtype("int32"), (), "", p.draws, "dropout_p"),
                layout="a seed and an offset",
            ),
            OperandSpec("dx", "out", *rows, layout=_LAYOUT),
            OperandSpec(*("dresidual", "out", *rows, "", p.splits, "dropout_p"), layout=_LAYOUT),
            OperandSpec("dparameters", "out", *sums, layout="of weight and bias, by group"),
        )
        return {spec.name: spec for spec in specs}

    def run(
        self,
        dout: Any,
        x: Any,
        weight: Any,
        dresidual_out: Any = None,
        state: Any = None,
        *,
        dx: Any = None,
        dresidual: Any = None,
        dparameters: Any = None,
        workspace: Any = None,
        stream: Any = None,
    ) -> Any:
        """Run the plan on arrays of its shapes; results go to the given arrays.

        Returns
        -------
        dx : array, like x
        dresidual : array, like x, or None
            An array only if it is not `dx`.
        dparameters : array, float32, (groups, 1 or 2, columns)
            The gradients of the weight and of the bias.
        """
        given = {"dout": dout, "x": x, "weight": weight, "dresidual_out": dresidual_out}
        views, handle = self.views_of({**given, "state": state}, stream)
        return self.execute(x, views, (dx, dresidual, dparameters), "", handle, workspace)


planned = planner(planning, LayerNormBackwardPlan, planning.best)
