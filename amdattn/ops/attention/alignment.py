"""Checks addresses and strides of q, k, v and o against the requirements of attention kernels."""

from __future__ import annotations

from amdattn.device.manifest import KernelSpec
from amdattn.op.plan import Operand


def misalignment(operand: Operand, kernel: KernelSpec, dim: int, of_blocks: bool = True) -> str:
    """The reason why a kernel cannot load q, k, v or o with this address and strides, or "".

    With `of_blocks` the kernel loads blocks of rows of `dim` elements: from k and v that are not
    gathered before.
    """
    if wrong := wrong_for_loads(operand, kernel):
        return wrong
    wrong = wrong_for_blocks(operand.strides["seq"], dim, kernel) if of_blocks else ""
    return f"{wrong} unless the plan gathers its rows (gather)" if wrong else ""


def wrong_for_loads(operand: Operand, kernel: KernelSpec) -> str:
    """The reason why no load of the kernel supports the address or strides of a tensor, or ""."""
    align = kernel.accepts["pointer_align_bytes"]
    if operand.address % align:
        return f"address {operand.address:#x}, which must be a multiple of {align} bytes"
    multiple = kernel.accepts["stride_multiple"]
    for axis, step in operand.strides.items():
        if step % multiple:
            return f"{axis} stride {step}, which must be a multiple of {multiple} elements"
    return ""


def wrong_for_blocks(step: int, dim: int, kernel: KernelSpec, limits: str = "kv_stride_seq") -> str:
    """The reason why a kernel cannot load blocks of rows of `dim` elements with this stride, or "".

    `limits` is the key of `KernelSpec.accepts` with the least and the greatest stride.
    """
    low, high = kernel.accepts[limits]
    if not low <= step <= high:
        return f"seq stride {step}, which must be in {low}..{high} elements"
    # Rows beyond the last one are recognised by their offset, which must not be that of a row.
    if low == 0 < step < dim:
        return f"seq stride {step}, which must be 0 or at least the {dim} elements of a row"
    return ""
