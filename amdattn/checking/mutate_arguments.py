"""Mutants that nothing can show, where that takes an argument that no analysis here finds.

Keyed by the digest of the kernel's instructions, so that no argument outlives the code it is about.
"""

from __future__ import annotations

# (digest of the kernel's instructions, class, address) -> why nothing can be seen
ARGUMENTS: dict[tuple[str, str, int], str] = {}
