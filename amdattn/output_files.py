"""Checks files that a command will write before its work, and replaces them atomically."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path


def check_outputs(
    outputs: Iterable[tuple[str, Path | None]], inputs: Iterable[tuple[str, Path | None]] = ()
) -> None:
    """Check that files can be written, before work that takes long.

    Parameters
    ----------
    outputs : iterable of (str, Path or None)
        The option of each file, such as "--csv", and its path; None: not requested.
    inputs
        The same for files that are read, which no output may replace.

    Raises
    ------
    ValueError
        A file cannot be written, or two outputs, or an output and an input, are the same file.
    """
    named = {_target(path): name for name, path in inputs if path is not None}
    for option, path in outputs:
        if path is None:
            continue
        why = _why_not(path)
        if why:
            raise ValueError(f"{option}={str(path)!r} cannot be written: {why}")
        target = _target(path)
        if target in named and not _is_special(target):
            raise ValueError(f"{option}={str(path)!r} is also the file of {named[target]}")
        named[target] = option


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary file to write to, which replaces `path` at the end of the block.

    After an error in the block `path` is unchanged. Special files, such as /dev/stdout, are written
    directly.
    """
    target = _target(path)
    if _is_special(target):
        with _naming(path):
            yield target
        return
    with (
        _naming(path),
        tempfile.TemporaryDirectory(dir=target.parent, prefix=".amdattn-") as folder,
    ):
        new = Path(folder) / target.name
        yield new
        if target.exists():
            shutil.copymode(target, new)
        os.replace(new, target)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Make errors of the block, for example of a full disk, name the file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def _target(path: Path) -> Path:
    """The file that a link leads to, because the file is replaced and not the link."""
    return Path(os.path.realpath(path))


def _is_special(target: Path) -> bool:
    return target.exists() and not target.is_file()


def _why_not(path: Path) -> str:
    """The reason why a path cannot be written; "" if it can."""
    try:
        target = _target(path)
        if target.is_dir():
            return "it is a folder"
        if target.exists() and not os.access(target, os.W_OK):
            return "it is read-only"
        if _is_special(target):
            return ""
        if not target.parent.is_dir():
            return f"there is no folder {target.parent}"
        # os.access allows root everything, but a file system may still refuse.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".amdattn-") as folder:
            (Path(folder) / target.name).touch()
    except OSError as error:
        return error.strerror or str(error)
    return ""
