"""The options that several commands have, each spelled the same in all of them.

They are called as the arguments of the Python API, and abbreviated as AITER's benchmarks do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from amdattn.arch.products import REFERENCE
from amdattn.arch.props import KNOWN_DEVICES

Batch = Annotated[int, typer.Option("--batch", "-b", help="Sequences.")]
SeqlenQ = Annotated[int, typer.Option("--seqlen-q", "-sq", help="Rows of q in a sequence.")]
SeqlenKv = Annotated[
    int, typer.Option("--seqlen-kv", "-skv", help="Rows of k and v; 0: as seqlen-q.")
]
HeadsQ = Annotated[int, typer.Option("--heads-q", "-hq", help="Heads of q.")]
HeadsKv = Annotated[
    int, typer.Option("--heads-kv", "-hkv", help="Heads of k and v, a divisor; 0: as heads-q.")
]
HeadDim = Annotated[int, typer.Option("--head-dim", "-d", help="Channels of q and k.")]
HeadDimV = Annotated[int, typer.Option("--head-dim-v", "-dv", help="Of v; 0: as head-dim.")]
Dtype = Annotated[str, typer.Option(help="bfloat16 or float16.")]
Layout = Annotated[str, typer.Option(help="bshd or bhsd: the order of the axes.")]
SoftmaxScale = Annotated[
    float | None, typer.Option(help="Scale of scores; default: 1/sqrt(head_dim).")
]
Causal = Annotated[
    bool,
    typer.Option("--causal", help="The last query sees all keys, each before one less."),
]
WindowSize = Annotated[
    tuple[int, int], typer.Option(help="Keys left and right of a query's own; -1: all.")
]
TopLeft = Annotated[
    bool, typer.Option("--top-left", help="Mask alignment: the diagonal begins at the first key.")
]
Softcap = Annotated[float, typer.Option(help="Bound of the scaled scores; 0: none.")]
RoundMode = Annotated[str, typer.Option(help="rtne, rtna or rtz.")]
NumSplits = Annotated[int, typer.Option(help="Splits of KV; 0: the plan chooses.")]
Gather = Annotated[str, typer.Option(help="k, v or kv: pack their rows first.")]
Sinks = Annotated[
    bool, typer.Option("--sinks", help="Every head has a sink: a logit without a value.")
]

N = Annotated[int, typer.Option("--n", "-n", help="Columns of the result.")]
K = Annotated[int, typer.Option("--k", "-k", help="Elements that are summed over.")]
Bias = Annotated[bool, typer.Option("--bias", help="Add one of every column.")]
Activation = Annotated[
    str | None, typer.Option(help="As of gemm_nt; with ..._and_mul b has 2 n rows.")
]
Deterministic = Annotated[bool, typer.Option(help="Add splits of k in their order, or atomically.")]

Device = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(KNOWN_DEVICES)}, a partition as {REFERENCE.name}:CPX, or bound: the one "
        "at hand."
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Of the random inputs.")]


def refuse_given(context: typer.Context, names: Iterable[str], why: str) -> None:
    """Raise if one of these parameters was given, which otherwise would be ignored.

    Parameters
    ----------
    names : iterable of str
        As the command's function has them.
    why : str
        What follows the option, such as "needs --mutate".
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"--{name.replace('_', '-')} {why}")
