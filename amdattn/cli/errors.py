"""Errors of the command, as one line each, and what options that had other names are called."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import typer

from amdattn.cli.exit_codes import INTERRUPTED
from amdattn.cli.output import stderr
from amdattn.errors import AmdattnError, HipError

# What a user's input or machine can cause. Anything else is a defect of this package: its
# traceback is what a report needs.
EXPECTED = (
    *(AmdattnError, ValueError, TypeError, OSError, EOFError),
    *(MemoryError, OverflowError, RuntimeError, ImportError),
)
# What lengths and options were called, here or in other tools -> what they are called in every
# command that has them.
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
_INTERRUPTED = "interrupted by SIGINT"  # what the virtual device says of a launch that Ctrl-C ended
# Every usage error of typer, which has had click's classes and its own.
_Usage: Any = typer.BadParameter.__base__


def run(app: typer.Typer, prog_name: str = "amdattn") -> int:
    """Run the command line; returns its exit code. What a user can cause is one line and code 2."""
    if sys.stdout is None:  # closed by whoever started the command
        show("stdout is closed")
        return 2
    code = _run(app, prog_name)
    try:
        sys.stdout.flush()
    except OSError as error:
        with open(os.devnull, "w", encoding="utf-8") as nowhere:  # for the interpreter's last flush
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # whoever reads the output has seen enough
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
        if type(error).__name__ != "NoArgsIsHelpError":  # then the help was printed
            show(_usage(error))
    except (KeyboardInterrupt, typer.Abort):
        show("interrupted")
        return INTERRUPTED
    except EXPECTED as error:
        if isinstance(error, HipError) and _INTERRUPTED in error.report:
            show("interrupted")  # Python has lost the exception, in a destructor for example
            return INTERRUPTED
        show(_text(error), type(error).__name__ if isinstance(error, AmdattnError) else "Error")
    return 2


def show(text: str, name: str = "Error") -> None:
    """Print a line on stderr, however wide the terminal is."""
    stderr.print(f"[bold red]{name}[/]: ", end="")
    stderr.print(text, markup=False, highlight=False, soft_wrap=True)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # files are named
        return f"stdout: {error.strerror}"
    return str(error) or type(error).__name__


def _usage(error: Any) -> str:
    """What was typed wrong, and the command whose help says what is right."""
    text = " ".join(error.format_message().split()).removesuffix(".")
    if hasattr(error.__cause__, "errors"):  # pydantic's, which newer typers convert with
        text += f", not {error.__cause__.errors()[0]['input']!r}"
    if error.ctx is None:
        return text
    command = error.ctx.command
    old = getattr(error, "option_name", "")
    # Of -sk the parser names -s.
    typed = [word for word in sys.argv[1:] if old and word.startswith(old) and word in RENAMED]
    old = max(typed, key=len, default=old)
    names = {name: option.opts for option in command.params for name in option.opts}
    names["--help"] = ["--help"]
    if RENAMED.get(old) in names:
        return f"No such option: {old}; it is {' or '.join(names[RENAMED[old]])} in every command"
    return f"{text} (see {error.ctx.command_path} --help)"
