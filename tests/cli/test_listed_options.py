"""Every option of every command, with its default and limits, is that of listed_options.txt.

Whoever adds one or moves a limit sees it here, and lists it with

    python -m tests.cli.test_listed_options
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.models import ParameterInfo

from amdattn import cli

LISTED = Path(__file__).with_name("listed_options.txt")


def options(app: typer.Typer, path: str) -> Iterator[str]:
    """Commands with their options, then those of groups."""
    for command in app.registered_commands:
        assert command.callback is not None
        yield f"# {path} {command.name or command.callback.__name__.replace('_', '-')}"
        yield from sorted(of_command(command.callback))
        yield ""
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from options(group.typer_instance, f"{path} {group.name}")


def of_command(function: Any) -> Iterator[str]:
    given = function.__defaults__ or ()
    defaults = dict(zip(parameters(function)[::-1], given[::-1], strict=False))
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        for info in getattr(hint, "__metadata__", ()):
            assert isinstance(info, ParameterInfo)
            parts = [name, *(info.param_decls or ())]
            for fact in ("min", "max", "clamp", "exists", "metavar", "is_eager"):
                value = getattr(info, fact)
                if value is not None and value is not False:
                    parts.append(f"{fact}={value}")
            yield " ".join(parts) + (f" = {defaults[name]!r}" if name in defaults else "")


def parameters(function: Any) -> tuple[str, ...]:
    code = function.__code__
    return tuple(code.co_varnames[: code.co_argcount])


def test_options_are_those_that_are_listed() -> None:
    assert list(options(cli.app, "amdattn")) == LISTED.read_text().split("\n")


if __name__ == "__main__":
    sys.stdout.write(f"{LISTED.write_text(chr(10).join(options(cli.app, 'amdattn')))} characters\n")
