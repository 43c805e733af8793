"""Exit codes of the command, which importing takes no time."""

from __future__ import annotations

INTERRUPTED = 130
