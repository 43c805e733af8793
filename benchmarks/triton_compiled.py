"""Launches of `triton_elementwise`, compiled for what Triton's own launcher would find."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from amdattn.bench.kernels import Launch
from amdattn.device import runtime
from amdattn.dtypes import as_dtype
from amdattn.op.plan import Operand
from amdattn.ops.layer_norm.problem import LayerNormProblem
from amdattn.ops.rotary.problem import RotaryProblem

_LANES_PER_WAVE = 64
_ROTARY_WAVES = 4
_DIVISIBLE = 16  # what the compiler is told of arguments


def launch(problem: Any, operands: Mapping[str, Operand]) -> Launch | None:
    """What Triton makes of a problem on the addresses of `operands`; None: no such kernel."""
    if isinstance(problem, LayerNormProblem) and not problem.narrow and not problem.rms:
        return _layer_norm(problem, operands)
    if isinstance(problem, RotaryProblem) and not problem.heads_k and not problem.interleaved:
        return _rotary(problem, operands)
    return None


def _layer_norm(p: LayerNormProblem, operands: Mapping[str, Operand]) -> Launch:
    """The waves are those of Triton's tutorial."""
    from benchmarks.triton_elementwise import layer_norm

    tile = 1 << (p.columns - 1).bit_length()
    waves = min(max(tile // 256, 1), 8)
    names = ("x", "weight", "bias", "residual", "out", "residual_out")
    pointers = {name: operands[name].address if name in operands else 0 for name in names}
    scalars = {"columns": p.columns, "eps": p.eps, "dropout_p": p.dropout_p, "seed": 1}
    constants = {"RESIDUAL": p.residual, "DROPOUT": p.draws, "TILE": tile}
    pointers["total"] = pointers.pop("residual_out")
    types = dict.fromkeys(pointers, p.dtype) | dict.fromkeys(("weight", "bias"), p.weight_dtype)
    return _compiled(layer_norm, p.rows, waves, pointers, types, scalars, constants)


def _rotary(p: RotaryProblem, operands: Mapping[str, Operand]) -> Launch:
    from benchmarks.triton_elementwise import rotary

    pointers = {name: operands[name].address for name in ("x", "cos", "sin", "out")}
    types = dict.fromkeys(pointers, p.dtype) | dict.fromkeys(("cos", "sin"), p.table_dtype)
    constants = {"HALF": p.head_dim // 2, "HEADS": 1 << (p.heads - 1).bit_length()}
    scalars: dict[str, int | float] = {"seqlen": p.seqlen, "heads": p.heads}
    rows = p.batch * p.seqlen
    return _compiled(rotary, rows, _ROTARY_WAVES, pointers, types, scalars, constants)


def _compiled(
    kernel: Any,
    programs: int,
    waves: int,
    pointers: dict[str, int],
    types: dict[str, Any],
    scalars: dict[str, int | float],
    constants: dict[str, Any],
) -> Launch:
    from triton import compile as compile_source
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: f"*{as_dtype(types[name]).short}" for name in pointers}
    signature |= {name: "i32" if isinstance(x, int) else "fp32" for name, x in scalars.items()}
    values = pointers | scalars
    divisible = (
        name in pointers or (isinstance(x, int) and x % _DIVISIBLE == 0)
        for name, x in values.items()
    )
    facts = {(i,): [["tt.divisibility", _DIVISIBLE]] for i, yes in enumerate(divisible) if yes}
    compiled = compile_source(
        ASTSource(kernel, signature | dict.fromkeys(constants, "constexpr"), constants, facts),
        target=GPUTarget("hip", runtime.device_props().arch, _LANES_PER_WAVE),
        options={"num_warps": waves, "enable_fp_fusion": True},
    )
    codes = "".join("i" if isinstance(x, int) else "f" for x in scalars.values())
    packed = struct.pack(f"<{len(pointers)}Q{codes}", *values.values())
    # Two addresses that the compiler appends: global scratch and profile scratch, unused.
    packed += bytes(-len(packed) % 8 + 16)
    workgroup = (waves * _LANES_PER_WAVE, 1, 1)
    return Launch(
        *(compiled.asm["hsaco"], compiled.metadata.name, (programs, 1, 1), workgroup, packed),
        compiled.metadata.shared,
    )
