"""The amdattn command. Importing this package is cheap, because `main` imports the rest."""

from __future__ import annotations

import sys
from typing import Any

from amdattn.cli.exit_codes import INTERRUPTED


def main() -> None:
    """Run the command; errors of the package become one line and exit code 2."""
    try:
        from amdattn.cli import commands, errors
    except KeyboardInterrupt:
        sys.stderr.write("Error: interrupted\n")
        sys.exit(INTERRUPTED)
    sys.exit(errors.run(commands.app))


def __getattr__(name: str) -> Any:
    """Import `app`, the application with all commands, on first use."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from amdattn.cli.commands import app

    return app
