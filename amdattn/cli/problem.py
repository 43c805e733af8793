"""Makes a command for each operation of the registry, with the options of its problem."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from amdattn.op.operation import Operation
from amdattn.op.options import REQUIRED, Option
from amdattn.ops import registry

Body = Callable[..., None]


def registry_group(
    body: Body, text: str, cls: type[TyperCommand] = TyperCommand, default: str = ""
) -> type[TyperGroup]:
    """A class of groups with a command for each operation, made on demand.

    Commands that are added to the group itself take precedence.

    Parameters
    ----------
    body : callable
        Takes the operation and its problem, and by keyword all other parameters that it declares,
        which become additional options.
    text : str
        The help of a command; ``{}`` stands for the title of the operation.
    cls : type
        The class of the commands.
    default : str
        The command to run if the line begins with an option; "": none.
    """

    class Group(TyperGroup):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            if default and (not args or (args[0].startswith("-") and args[0] != "--help")):
                args = [default, *args]
            return super().parse_args(ctx, args)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(dict.fromkeys([*super().list_commands(ctx), *registry.names()]))

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            found = super().get_command(ctx, cmd_name)
            if found is not None or cmd_name not in registry.names():
                return found
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(cmd_name, cls=cls)(self.made(cmd_name))
            return typer.main.get_command(app)

        @staticmethod
        def made(name: str) -> Body:
            """The function of the command for an operation."""
            operation = registry.operation(name)
            return _command(operation, body, text.format(operation.title))

    return Group


def _command(operation: Operation[Any, Any], body: Body, text: str) -> Body:
    names = [option.name for option in operation.options]

    def command(**values: Any) -> None:
        problem = operation.problem(**{name: values.pop(name) for name in names})
        body(operation, problem, **values)

    parameters = [
        *map(_parameter, operation.options),
        *(
            parameter
            for parameter in inspect.signature(body, eval_str=True).parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        ),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__doc__ = text
    return command


def _parameter(option: Option) -> inspect.Parameter:
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if option.default is REQUIRED else option.default,
        annotation=Annotated[option.type, typer.Option(*option.flags, help=option.help)],
    )
