"""The explain commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import amdattn
from amdattn.arch.products import REFERENCE
from amdattn.arch.props import KNOWN_DEVICES, KNOWN_PARTITIONS, DeviceProps
from amdattn.cli.options import (
    Activation,
    Batch,
    Bias,
    Causal,
    Deterministic,
    Device,
    Dtype,
    Gather,
    HeadDim,
    HeadDimV,
    HeadsKv,
    HeadsQ,
    K,
    N,
    NumSplits,
    RoundMode,
    SeqlenKv,
    SeqlenQ,
    Sinks,
    Softcap,
    SoftmaxScale,
    TopLeft,
    WindowSize,
)
from amdattn.cli.output import AsJson, print_facts, print_json

_DEFAULT = "attention"


class _Explain(TyperGroup):
    """`amdattn explain --causal` explains attention."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] != "--help"):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Explain, help="Which kernel a problem gets, and why. Needs no device. Default: attention."
)


@app.command()
def attention(
    batch: Batch = 1,
    seqlen_q: SeqlenQ = 4096,
    seqlen_kv: SeqlenKv = 0,
    heads_q: HeadsQ = 32,
    heads_kv: HeadsKv = 0,
    head_dim: HeadDim = 128,
    head_dim_v: HeadDimV = 0,
    dtype: Dtype = "bfloat16",
    softmax_scale: SoftmaxScale = None,
    causal: Causal = False,
    window_size: WindowSize = (-1, -1),
    top_left: TopLeft = False,
    softcap: Softcap = 0.0,
    sinks: Sinks = False,
    round_mode: RoundMode = "rtne",
    num_splits: NumSplits = 0,
    lse: Annotated[bool, typer.Option("--lse", help="Also ask for the log-sum-exp.")] = False,
    gather: Gather = "",
    device: Device = REFERENCE.name,
    as_json: AsJson = False,
) -> None:
    """Plan of an attention forward call."""
    plan = amdattn.plan_attention(
        batch,
        seqlen_q,
        seqlen_kv or seqlen_q,
        heads_q,
        heads_kv or heads_q,
        head_dim,
        head_dim_v=head_dim_v,
        dtype=dtype,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        top_left=top_left,
        softcap=softcap,
        sinks=sinks,
        round_mode=round_mode,
        num_splits=num_splits,
        return_lse=lse,
        gather=gather,
        device=_device(device),
    )
    _print(plan.as_dict(), as_json)


@app.command()
def gemm(
    m: Annotated[int, typer.Option("--m", "-m", help="Rows of a.")],
    n: N,
    k: K,
    dtype: Dtype = "bfloat16",
    out_dtype: Annotated[
        str, typer.Option(help="bfloat16, float16 or float32; default: as --dtype.")
    ] = "",
    bias: Bias = False,
    alpha: Annotated[float, typer.Option(help="Factor of the product.")] = 1.0,
    activation: Activation = None,
    split_k: Annotated[int, typer.Option(help="Splits of k; 0: the plan chooses.")] = 0,
    aligned: Annotated[
        bool, typer.Option(help="Rows of a and b begin at multiples of 4 bytes.")
    ] = True,
    deterministic: Deterministic = True,
    device: Device = REFERENCE.name,
    as_json: AsJson = False,
) -> None:
    """Plan of a product with few rows, as gemm_nt makes it."""
    plan = amdattn.plan_gemm(
        m,
        n,
        k,
        dtype=dtype,
        out_dtype=out_dtype,
        bias=bias,
        alpha=alpha,
        activation=activation,
        split_k=split_k,
        aligned=aligned,
        deterministic=deterministic,
        device=_device(device),
    )
    _print(plan.as_dict(), as_json)


def _device(name: str) -> DeviceProps:
    if name == "bound":
        return amdattn.device_props()
    known = KNOWN_DEVICES | KNOWN_PARTITIONS
    if name not in known:
        raise ValueError(f"--device={name!r} must be one of {', '.join(known)}, bound")
    return known[name]


def _print(facts: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(dict(facts))
    else:
        print_facts("plan", facts)
