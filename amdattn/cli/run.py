"""The run command, which computes attention on .npy files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import amdattn
from amdattn.cli.options import (
    Causal,
    Layout,
    NumSplits,
    RoundMode,
    Softcap,
    SoftmaxScale,
    TopLeft,
    WindowSize,
)
from amdattn.cli.output import AsJson, print_facts, print_json, spinner
from amdattn.output_files import check_outputs, replacing

if TYPE_CHECKING:
    from numpy.typing import NDArray

ELEMENTS = ("bfloat16", "float16")
_WIDE = ("float32", "float64")
_VARLEN = "sequences of several lengths"


def run(
    q: Annotated[
        Path,
        typer.Option(
            help=f".npy file, (batch, seqlen, heads, head_dim); for {_VARLEN}, without batch."
        ),
    ],
    k: Annotated[Path, typer.Option(help=".npy file, as for q with the heads of k and v.")],
    v: Annotated[Path, typer.Option(help=".npy file, as for k.")],
    out: Annotated[Path, typer.Option("--out", "-o", help=".npy file to write.")],
    lse: Annotated[
        Path | None, typer.Option(help="Also write the log-sum-exp, float32, to this .npy file.")
    ] = None,
    layout: Layout = "bshd",
    dtype: Annotated[
        str, typer.Option(help="bfloat16 or float16; default: the type of the files.")
    ] = "",
    cast: Annotated[
        bool,
        typer.Option(
            "--cast", help="Round float32 or float64 to --dtype (bfloat16); write float32."
        ),
    ] = False,
    softmax_scale: SoftmaxScale = None,
    causal: Causal = False,
    window_size: WindowSize = (-1, -1),
    top_left: TopLeft = False,
    softcap: Softcap = 0.0,
    sinks: Annotated[
        Path | None,
        typer.Option(help=".npy file, float32, (heads,): scores of keys without values."),
    ] = None,
    round_mode: RoundMode = "rtne",
    num_splits: NumSplits = 0,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="No effect: results always are deterministic.")
    ] = False,
    dropout_p: Annotated[float, typer.Option(help="Only 0 is accepted.")] = 0.0,
    alibi_slopes: Annotated[Path | None, typer.Option(help="Refused.")] = None,
    cu_seqlens_q: Annotated[
        Path | None,
        typer.Option(help=f".npy file, int32: cumulative lengths of {_VARLEN}, from 0 on."),
    ] = None,
    cu_seqlens_k: Annotated[
        Path | None, typer.Option(help="The same for k and v; default: as for q.")
    ] = None,
    max_seqlen_q: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Longest sequence; rows beyond it are not computed."),
    ] = 0,
    max_seqlen_k: Annotated[
        int, typer.Option(metavar="N", min=0, help="The same for k and v.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Compute attention on .npy files, with every argument of flash_attn_func."""
    import numpy as np

    from amdattn.device import runtime

    inputs = {"--q": q, "--k": k, "--v": v, "--sinks": sinks}
    inputs |= {"--cu-seqlens-q": cu_seqlens_q, "--cu-seqlens-k": cu_seqlens_k}
    check_outputs([("--out", out), ("--lse", lse)], inputs.items())
    if dtype not in ("", *ELEMENTS):
        raise ValueError(f"--dtype={dtype!r} must be one of {', '.join(ELEMENTS)}")
    q_array = _operand("--q", q, dtype, cast)
    k_array = _operand("--k", k, dtype, cast)
    v_array = _operand("--v", v, dtype, cast)
    options: dict[str, Any] = {
        "softmax_scale": softmax_scale,
        "causal": causal,
        "window_size": window_size,
        "top_left": top_left,
        "softcap": softcap,
        "sinks": None if sinks is None else read_npy("--sinks", sinks),
        "round_mode": round_mode,
        "num_splits": num_splits,
        "deterministic": deterministic,
        "dropout_p": dropout_p,
        "alibi_slopes": None if alibi_slopes is None else read_npy("--alibi-slopes", alibi_slopes),
    }
    start = time.perf_counter()
    with spinner(f"attention on {q.name}, {k.name}, {v.name}", quiet=as_json):
        if cu_seqlens_q is None:
            _refuse_varlen(cu_seqlens_k, max_seqlen_q, max_seqlen_k)
            result, result_lse = amdattn.flash_attn_func(
                q_array, k_array, v_array, **options, layout=layout, return_lse=True
            )
        else:
            if layout != "bshd":
                raise ValueError(f"--layout={layout!r} must be 'bshd' with --cu-seqlens-q")
            sums = _sums(cu_seqlens_q, cu_seqlens_k, (max_seqlen_q, max_seqlen_k))
            result, result_lse = amdattn.flash_attn_varlen_func(
                q_array, k_array, v_array, *sums, **options, return_lse=True
            )
    seconds = time.perf_counter() - start
    written = {out: result.astype(np.float32) if cast else result}
    if lse is not None:
        written[lse] = result_lse
    for path, array in written.items():
        with replacing(path) as file, open(file, "wb") as stream:
            np.save(stream, array)
    facts = {
        name: f"{path} {tuple(array.shape)} {array.dtype}"
        for name, (path, array) in zip(("out", "lse"), written.items(), strict=False)
    }
    facts["device"] = runtime.get().title
    facts["wall time"] = f"{seconds:.3f} s with copies, {runtime.get().measured_on}"
    if as_json:
        print_json(facts)
    else:
        print_facts("run", facts)


def read_npy(option: str, path: Path) -> NDArray[Any]:
    """Read the array of a .npy file; elements of 2 bytes without a type are taken for bfloat16.

    NumPy stores bfloat16 in this way.

    Raises
    ------
    ValueError
        The file cannot be read; the message names `option`.
    """
    from amdattn.dtypes import BFLOAT16
    from amdattn.user_files import read_array

    try:
        array = read_array(path)
    except ValueError as error:
        raise ValueError(f"{option}={error}") from None
    except OSError as error:
        raise ValueError(f"{option}={path}: {error.strerror}") from None
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return array.view(BFLOAT16.numpy())
    return array


def _operand(option: str, path: Path, dtype: str, cast: bool) -> NDArray[Any]:
    """Read q, k or v in the requested element type."""
    from amdattn.dtypes import BFLOAT16, FLOAT16

    array = read_npy(option, path)
    held = array.dtype.name
    if held in _WIDE and cast:
        element = FLOAT16 if dtype == "float16" else BFLOAT16
        return array.astype(element.numpy())
    wanted = [dtype] if dtype else list(ELEMENTS)
    if held not in wanted:
        hint = "; --cast rounds it" if held in _WIDE else ""
        raise ValueError(
            f"{option}={str(path)!r} holds {held}, must be {' or '.join(wanted)}{hint}"
        )
    return array


def _refuse_varlen(cu_seqlens_k: Path | None, max_seqlen_q: int, max_seqlen_k: int) -> None:
    for name, given in (
        ("cu-seqlens-k", cu_seqlens_k),
        ("max-seqlen-q", max_seqlen_q),
        ("max-seqlen-k", max_seqlen_k),
    ):
        if given:
            raise ValueError(f"--{name}={str(given)!r} needs --cu-seqlens-q")


def _sums(of_q: Path, of_k: Path | None, longest: tuple[int, int]) -> tuple[Any, ...]:
    """cu_seqlens_q, cu_seqlens_k, max_seqlen_q and max_seqlen_k."""
    import numpy as np

    sums = [read_npy("--cu-seqlens-q", of_q)]
    sums.append(sums[0] if of_k is None else read_npy("--cu-seqlens-k", of_k))
    found = [
        given or max(1, int(np.diff(rows).max(initial=0))) if rows.ndim == 1 else given
        for given, rows in zip(longest, sums, strict=True)
    ]
    return *sums, *found
