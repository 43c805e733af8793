"""Exit codes of the command, in a module that is cheap to import."""

from __future__ import annotations

INTERRUPTED = 130
