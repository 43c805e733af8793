"""Every option of every command, with its default and limits, is that of listed_options.txt.

Whoever adds one or moves a limit sees it here, and lists it with

    python -m tests.cli.test_listed_options
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.models import ParameterInfo

from amdattn import cli
from amdattn.ops import registry

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
        made = getattr(group.typer_instance.info.cls, "made", None)
        own = {str(command.name) for command in group.typer_instance.registered_commands}
        own |= {
            command.callback.__name__
            for command in group.typer_instance.registered_commands
            if command.callback is not None
        }
        for name in registry.names() if made else ():
            if name not in own:
                yield f"# {path} {group.name} {name}"
                yield from sorted(of_command(made(name)))
                yield ""


def of_command(function: Any) -> Iterator[str]:
    parameters = inspect.signature(function).parameters
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        for info in getattr(hint, "__metadata__", ()):
            assert isinstance(info, ParameterInfo)
            parts = [name, *(info.param_decls or ())]
            for fact in ("min", "max", "clamp", "exists", "metavar", "is_eager"):
                value = getattr(info, fact)
                if value is not None and value is not False:
                    parts.append(f"{fact}={value}")
            yield " ".join(parts) + (
                f" = {parameters[name].default!r}"
                if parameters[name].default is not inspect.Parameter.empty
                else ""
            )


def test_options_are_those_that_are_listed() -> None:
    assert list(options(cli.app, "amdattn")) == LISTED.read_text().split("\n")


if __name__ == "__main__":
    sys.stdout.write(f"{LISTED.write_text(chr(10).join(options(cli.app, 'amdattn')))} characters\n")
