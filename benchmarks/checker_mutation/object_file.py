"""A launch of any code object, as a campaign takes it."""

from __future__ import annotations

from amdattn.checking import arguments
from amdattn.checking.subjects import CodeObject
from benchmarks.checker_mutation.subject import Buffer, Case, Subject

_CONTRACTS = {"in": "read_only", "zero": "zero_at_end"}


def object_subject(code_object: CodeObject) -> Subject:
    """The launch that `amdattn check` would make of it, as the only case."""
    block = bytearray(code_object.kernel.explicit_bytes)
    pointers: list[tuple[int, int]] = []
    buffers: list[Buffer] = []
    for offset, argument in code_object.placed:
        if isinstance(argument, arguments.Buffer):
            pointers.append((offset, len(buffers)))
            data = None
            if argument.role != "out":
                data = argument.contents(code_object.seed).tobytes()
            is_output = argument.role in ("out", "inout")
            contract = _CONTRACTS.get(argument.role, "")
            buffers.append(Buffer(argument.name, argument.nbytes, data, is_output, contract))
        else:
            packed = argument.packed()
            block[offset : offset + len(packed)] = packed
    case = Case(
        code_object.title,
        code_object.grid,
        code_object.workgroup,
        bytes(block),
        tuple(pointers),
        tuple(buffers),
        code_object.dynamic_lds_bytes,
    )
    kernel = code_object.kernel.name
    return Subject(kernel, code_object.image, kernel, (case,))
