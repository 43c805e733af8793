"""What a user can do something about: the command prints the text and ends with exit code 1."""

from __future__ import annotations


class ModelError(ValueError):
    """A folder, a model or a request that this example does not take; the text says what."""
