"""The build command, which compiles a user's own HIP kernel to a code object."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from amdattn.cli.output import AsJson, print_json, spinner, stderr, stdout
from amdattn.compiler import DEFAULT_ARCH
from amdattn.output_files import check_outputs, replacing

if TYPE_CHECKING:
    from amdattn.device.code_object import KernelInfo


def build(
    source: Annotated[Path, typer.Argument(help="A .hip file with device code.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Code object to write; default: SOURCE with .hsaco."),
    ] = None,
    arch: Annotated[str, typer.Option(help="Architecture of the device.")] = DEFAULT_ARCH,
    define: Annotated[
        list[str] | None, typer.Option("--define", "-D", help="NAME or NAME=VALUE. Repeatable.")
    ] = None,
    include: Annotated[
        list[Path] | None, typer.Option("--include", "-I", help="Folder of headers. Repeatable.")
    ] = None,
    flag: Annotated[
        list[str] | None, typer.Option(help="Another option of clang: --flag=-O2. Repeatable.")
    ] = None,
    assembly: Annotated[
        Path | None, typer.Option(help="Also write the compiler's assembly to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile a HIP kernel with the clang of pip's ziglang, for `amdattn check` and `bench`.

    Errors and warnings of the compiler are shown unchanged.
    """
    from amdattn import compiler
    from amdattn.device.code_object import has_kernels, read_kernels

    if not source.is_file():
        raise ValueError(f"source {str(source)!r} is not a file")
    for folder in include or ():
        if not folder.is_dir():
            raise ValueError(f"--include={str(folder)!r} is not a folder")
    target = source.with_suffix(".hsaco") if output is None else output
    if not all(define or ()):
        raise ValueError("--define='' must be NAME or NAME=VALUE")
    check_outputs([("--output", target), ("--assembly", assembly)], [("the source", source)])
    with spinner(f"compiling {source.name} for {arch}", quiet=as_json):
        built = compiler.build(source, arch, define or (), include or (), flag or ())
    if built.warnings:
        stderr.print(built.warnings.rstrip(), markup=False, highlight=False, soft_wrap=True)
    if not has_kernels(built.code_object):
        raise ValueError(f"source {str(source)!r} has no kernel: no function is __global__")
    kernels = read_kernels(built.code_object, str(target))
    with replacing(target) as new:
        new.write_bytes(built.code_object)
    if assembly is not None:
        with replacing(assembly) as new:
            new.write_text(built.assembly, encoding="utf-8")
    if as_json:
        print_json({"code_object": str(target), "kernels": [*map(_facts, kernels.values())]})
        return
    table = Table("kernel", "VGPR (AGPR)", "SGPR", "LDS", "scratch", title=str(target))
    for kernel in kernels.values():
        needs = kernel.resources
        registers = f"{needs['vgpr']} ({needs['agpr']})"
        rest = (str(needs[name]) for name in ("sgpr", "lds_bytes", "scratch_bytes"))
        table.add_row(kernel.name, registers, *rest)
    stdout.print(table)
    for kernel in kernels.values():
        stdout.print(f"{kernel.name}({_described(kernel)})", markup=False, highlight=False)


def _facts(kernel: KernelInfo) -> dict[str, object]:
    return {
        "name": kernel.name,
        "max_lanes": kernel.max_lanes,
        **kernel.resources,
        "arguments": [
            {"name": argument.name, "bytes": argument.size, "is_buffer": argument.is_buffer}
            for argument in kernel.arguments
        ],
    }


def _described(kernel: KernelInfo) -> str:
    """The arguments in order, as far as the code object describes them."""
    return ", ".join(
        f"{argument.name}: buffer" if argument.is_buffer else f"{argument.name}: {argument.size} B"
        for argument in kernel.arguments
    )
