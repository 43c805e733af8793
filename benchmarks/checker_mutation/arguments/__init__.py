"""The arguments that are stated, by family of kernels."""

from __future__ import annotations

from benchmarks.checker_mutation.arguments import (
    attention,
    backward,
    decode,
    gemm,
    rows,
    tokens,
    triton,
)

ARGUMENTS = (
    *attention.ARGUMENTS,
    *backward.ARGUMENTS,
    *decode.ARGUMENTS,
    *gemm.ARGUMENTS,
    *rows.ARGUMENTS,
    *tokens.ARGUMENTS,
    *triton.ARGUMENTS,
)
