"""Prints errors of the command as one line each, and suggests names of options."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import typer

from amdattn.cli.exit_codes import INTERRUPTED
from amdattn.cli.output import stderr
from amdattn.errors import AmdattnError, HipError

# Errors that a user's input or machine can cause. Any other error is a defect of this package, and
# its traceback is shown, because a bug report needs it.
EXPECTED = (
    *(AmdattnError, ValueError, TypeError, OSError, EOFError),
    *(MemoryError, OverflowError, RuntimeError, ImportError),
)
# Names of lengths and options in older versions or other tools, and their names in every command
# that has them.
RENAMED = {
    "-q": "--seqlen-q",
    "-s": "--seqlen-q",
    "--seqlen": "--seqlen-q",
    "-k": "--seqlen-kv",
    "-sk": "--seqlen-kv",
    "--seqlen-k": "--seqlen-kv",
    "-hk": "--heads-kv",
    "--num-heads-q": "--heads-q",
    "--num-heads-kv": "--heads-kv",
    "--scale": "--softmax-scale",
    "--window": "--window-size",
    "--return-lse": "--lse",
    "--return-attn-probs": "--lse",
    "-h": "--help",
}
_INTERRUPTED = "interrupted by SIGINT"  # the virtual device's error for a launch that Ctrl-C ended
# The base of all usage errors of typer: click's class or its own, depending on the version.
_Usage: Any = typer.BadParameter.__base__


def run(app: typer.Typer, prog_name: str = "amdattn") -> int:
    """Run the command line and return its exit code; an error that a user can cause gives 2."""
    if sys.stdout is None:  # closed by the parent process
        show("stdout is closed")
        return 2
    code = _run(app, prog_name)
    try:
        sys.stdout.flush()
    except OSError as error:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # for the interpreter's last flush
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader closed the pipe, as `head` does
            return code or 1
        show(f"stdout: {error.strerror}")
        return 2
    return code


def _run(app: typer.Typer, prog_name: str) -> int:
    try:
        code = int(app(prog_name=prog_name, standalone_mode=False) or 0)
        if code == INTERRUPTED:  # typer's answer to Ctrl-C
            show("interrupted")
        return code
    except BrokenPipeError:
        return 1
    except _Usage as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # for which the help was printed already
            show(_usage(error))
    except (KeyboardInterrupt, typer.Abort):
        show("interrupted")
        return INTERRUPTED
    except EXPECTED as error:
        if isinstance(error, HipError) and _INTERRUPTED in error.report:
            show("interrupted")  # Python lost the exception, for example in a destructor
            return INTERRUPTED
        show(_text(error), type(error).__name__ if isinstance(error, AmdattnError) else "Error")
    return 2


def show(text: str, name: str = "Error") -> None:
    """Print a line on stderr without wrapping it to the terminal."""
    stderr.print(f"[bold red]{name}[/]: ", end="")
    stderr.print(text, markup=False, highlight=False, soft_wrap=True)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # errors of files name the file
        return f"stdout: {error.strerror}"
    return str(error) or type(error).__name__


def _usage(error: Any) -> str:
    """The text of a usage error, with the command whose help to read."""
    text = " ".join(error.format_message().split()).removesuffix(".")
    if hasattr(error.__cause__, "errors"):  # from pydantic, which newer versions of typer use
        text += f", not {error.__cause__.errors()[0]['input']!r}"
    if error.ctx is None:
        return text
    command = error.ctx.command
    old = getattr(error, "option_name", "")
    # The parser reports -s for -sk.
    typed = [word for word in sys.argv[1:] if old and word.startswith(old) and word in RENAMED]
    old = max(typed, key=len, default=old)
    names = {name: option.opts for option in command.params for name in option.opts}
    names["--help"] = ["--help"]
    if RENAMED.get(old) in names:
        return f"No such option: {old}; it is {' or '.join(names[RENAMED[old]])} in every command"
    return f"{text} (see {error.ctx.command_path} --help)"
