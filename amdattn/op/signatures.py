"""Functions that take the parameters of another function, which alone declares them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def rest_as(function: Callable[..., Any], *without: str) -> Callable[[F], F]:
    """Decorate a function whose ``*rest`` and ``**options`` are parameters of `function`.

    Its own parameters come first, except keyword-only ones, which come last. Help and
    `inspect.signature` show all of them. A value too many raises a TypeError, and so does an
    unknown name unless `function` takes any.

    Parameters
    ----------
    *without : str
        Parameters of `function` that it does not have.
    """

    def decorate(made: F) -> F:
        signature = inspect.signature(made)
        own = [x for x in signature.parameters.values() if x.kind not in _VARIABLE]
        left_out = {*without, *(x.name for x in own)}
        theirs = inspect.signature(function).parameters.values()
        rest = [x for x in theirs if x.kind not in _VARIABLE and x.name not in left_out]
        every = [x for x in (*own, *rest) if x.kind is not x.KEYWORD_ONLY]
        most = len(every)
        every += [x for x in (*rest, *own) if x.kind is x.KEYWORD_ONLY]
        names = {x.name for x in every}
        others = [x for x in theirs if x.kind is x.VAR_KEYWORD]  # any names

        @functools.wraps(made)
        def checked(*args: Any, **options: Any) -> Any:
            if len(args) > most:
                raise TypeError(f"{made.__name__}() takes {most} values, not {len(args)}")
            if not others and not names.issuperset(options):
                wrong = min(options.keys() - names)
                raise TypeError(f"{made.__name__}() got an unexpected keyword argument {wrong!r}")
            return made(*args, **options)

        found: Any = checked
        found.__signature__ = signature.replace(parameters=every + others)
        typed: F = found
        return typed

    return decorate
