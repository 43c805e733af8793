"""Names that other libraries have, and what an error about one says."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

NAMES = (
    *("softmax", "rope", "linear", "matmul", "layernorm", "LayerNorm", "rmsnorm", "RMSNorm"),
    *("flash_attention", "scaled_dot_product_attention", "swiglu", "silu", "gelu", "multinomial"),
    *("topk", "top_k", "quantize", "paged_attention"),
)


def named(module: ModuleType, name: str) -> list[tuple[str, str]]:
    """Modules and names that the error of one that is not there leads to; some."""
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; there is") as caught:
        getattr(module, name)
    found = re.findall(r"(amdattn(?:\.jax)?)\.(\w+)", str(caught.value).split("there is")[1])
    assert found
    return found
