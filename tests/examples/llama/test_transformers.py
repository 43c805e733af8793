"""examples/llama/reference.py beside Hugging Face's own code, of every family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.llama.checkpoint import Checkpoint
from examples.llama.config import read
from examples.llama.reference import Reference
from examples.llama.small_models import CONFIGS, config_of, write

pytestmark = pytest.mark.oracles
# Its angles are of float32 frequencies.
ALLOWED = 2e-5


@pytest.mark.parametrize("name", CONFIGS)
def test_logits(tmp_path: Path, name: str) -> None:
    torch, transformers = (pytest.importorskip(x) for x in ("torch", "transformers"))
    write(tmp_path, config_of(name))
    reference = Reference(Checkpoint(tmp_path), read(tmp_path))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float64, attn_implementation="eager"
    )
    # Angles of "dynamic" change with the length: a prompt in one piece, then token by token.
    ids = np.random.default_rng(1).integers(0, 96, 24).tolist()
    prompt = 11 if name == "dynamic" else 20
    with torch.no_grad():
        result = model(torch.tensor([ids[:prompt]]), use_cache=True)
        found = [*result.logits[0].numpy()]
        for token in ids[prompt:]:
            cache = result.past_key_values
            result = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
            found.append(result.logits[0, -1].numpy())
    np.testing.assert_allclose(found, reference.logits(ids), rtol=0, atol=ALLOWED)
