"""Options that several commands share, spelled the same in all of them.

They have the names of the arguments of the Python API, and the abbreviations of AITER's benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from amdattn.arch.products import REFERENCE
from amdattn.arch.props import KNOWN_DEVICES
from amdattn.op.options import Option
from amdattn.ops.attention import command_options as attention
from amdattn.ops.gemm import command_options as gemm


def _of(options: Sequence[Option], name: str) -> Any:
    """The option of a problem's argument."""
    (option,) = (option for option in options if option.name == name)
    return typer.Option(*option.flags, help=option.help)


Batch = Annotated[int, _of(attention.OPTIONS, "batch")]
SeqlenQ = Annotated[int, _of(attention.OPTIONS, "seqlen_q")]
SeqlenKv = Annotated[int, _of(attention.OPTIONS, "seqlen_kv")]
HeadsQ = Annotated[int, _of(attention.OPTIONS, "heads_q")]
HeadsKv = Annotated[int, _of(attention.OPTIONS, "heads_kv")]
HeadDim = Annotated[int, _of(attention.OPTIONS, "head_dim")]
HeadDimV = Annotated[int, _of(attention.OPTIONS, "head_dim_v")]
Dtype = Annotated[str, _of(attention.OPTIONS, "dtype")]
SoftmaxScale = Annotated[float | None, _of(attention.OPTIONS, "softmax_scale")]
Causal = Annotated[bool, _of(attention.OPTIONS, "causal")]
WindowSize = Annotated[tuple[int, int], _of(attention.OPTIONS, "window_size")]
TopLeft = Annotated[bool, _of(attention.OPTIONS, "top_left")]
Softcap = Annotated[float, _of(attention.OPTIONS, "softcap")]
Sinks = Annotated[bool, _of(attention.OPTIONS, "sinks")]
RoundMode = Annotated[str, _of(attention.OPTIONS, "round_mode")]
NumSplits = Annotated[int, _of(attention.OPTIONS, "num_splits")]
Gather = Annotated[str, _of(attention.OPTIONS, "gather")]
Layout = Annotated[str, typer.Option(help="bshd or bhsd: the order of the axes.")]

N = Annotated[int, _of(gemm.OPTIONS, "n")]
K = Annotated[int, _of(gemm.OPTIONS, "k")]
Bias = Annotated[bool, _of(gemm.OPTIONS, "bias")]
Activation = Annotated[str | None, _of(gemm.OPTIONS, "activation")]
Deterministic = Annotated[bool, _of(gemm.OPTIONS, "deterministic")]

Device = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(KNOWN_DEVICES)}, a partition such as {REFERENCE.name}:CPX, or bound for "
        "the bound device."
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the random inputs.")]


def refuse_given(context: typer.Context, names: Iterable[str], why: str) -> None:
    """Refuse parameters that were given but would be ignored.

    Parameters
    ----------
    context : typer.Context
        Of the command.
    names : iterable of str
        Parameters of the command's function.
    why : str
        The text after the option in the message, such as "needs --mutate".

    Raises
    ------
    ValueError
        One of the parameters was given on the command line.
    """
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise ValueError(f"--{name.replace('_', '-')} {why}")
