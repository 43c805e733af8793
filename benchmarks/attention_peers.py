"""`amdattn bench attention` with AITER's, MoonMath's and Triton's kernels beside ours.

    python -m benchmarks.attention_peers --peer aiter=DIR --peer moonmath=DIR --peer triton

takes every option of that command. docs/bench.md says where the peers are from.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from amdattn.bench.peer import PeerKind
from amdattn.cli import errors
from amdattn.cli.bench import attention
from amdattn.cli.bench_output import BenchCommand
from benchmarks.peers import compiled_gfx950
from benchmarks.peers.aiter import Aiter
from benchmarks.peers.moonmath import MoonMath
from benchmarks.peers.triton_peer import Triton


def _triton(value: str, modes: Sequence[str]) -> list[Triton]:
    """It has one rounding mode; that it compiles is known before anything runs."""
    triton = Triton()
    triton.try_compile()
    return [triton]


def _compiled(kind: str, value: str, modes: Sequence[str]) -> list[compiled_gfx950.Objects]:
    """They round by hardware."""
    return [compiled_gfx950.Objects(Path(value), kind)]


KINDS = (
    PeerKind("aiter=DIR", lambda value, modes: [Aiter(Path(value), mode) for mode in modes]),
    PeerKind("moonmath=DIR", lambda value, modes: [MoonMath(Path(value), mode) for mode in modes]),
    PeerKind("triton", _triton),
    *(PeerKind(f"{kind}=DIR", partial(_compiled, kind)) for kind in compiled_gfx950.KINDS),
)
_HELP = """Attention forward in bfloat16, our kernels and others in one table.

Peers are aiter=DIR (a checkout of ROCm/aiter), moonmath=DIR (its compiled code objects), triton
(compiled on the spot), for gfx950 gluon=DIR, flydsl=DIR and hipkittens=DIR (code objects, see
benchmarks/peers/compiled_gfx950.py), and object=FILE (a code object, with --grid and --args).
"""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command(cls=BenchCommand, help=_HELP, context_settings={"obj": KINDS})(attention)


def main() -> int:
    """Run the command line; returns its exit code."""
    return errors.run(app, "python -m benchmarks.attention_peers")


if __name__ == "__main__":
    sys.exit(main())
