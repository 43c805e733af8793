"""The amdattn command. Importing this takes no time: `main` imports the rest."""

from __future__ import annotations

import sys
from typing import Any

from amdattn.cli.exit_codes import INTERRUPTED


def main() -> None:
    """Entry point: errors of the package become one line and exit code 2."""
    try:
        from amdattn.cli import commands, errors
    except KeyboardInterrupt:
        sys.stderr.write("Error: interrupted\n")
        sys.exit(INTERRUPTED)
    sys.exit(errors.run(commands.app))


def __getattr__(name: str) -> Any:
    """`app`, of all commands."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from amdattn.cli.commands import app

    return app
