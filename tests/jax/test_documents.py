"""What docs/jax.md and the README show of amdattn.jax: examples run, errors are as they say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

import amdattn.jax as aj
from amdattn.jax import targets
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "jax.md").read_text()
README = (ROOT / "README.md").read_text()
BLOCKS = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


def test_the_examples_of_the_page_run() -> None:
    for block in BLOCKS.findall(PAGE):
        names: dict[str, Any] = {}
        exec(block, names)
        assert names["y"].shape == (2, 96, 256) and bool(jnp.isfinite(names["y"]).all())


def test_the_readme_s_example_runs() -> None:
    blocks = BLOCKS.findall(README)
    (with_jax,) = [block for block in blocks if "amdattn.jax" in block]
    names: dict[str, Any] = {}
    exec(blocks[0].replace("1024, 8, 128)", "64, 8, 128)"), names)
    exec(with_jax, names)
    expected = jax.nn.dot_product_attention(
        *(names[x].astype(np.float32) for x in "qkv"), is_causal=True
    )
    found = np.asarray(names["out"], np.float32)
    assert np.abs(found - expected).max() < 0.05


Q = jax.random.normal(jax.random.key(0), (1, 8, 4, 64), jnp.bfloat16)


def bound_to(kind: str) -> Any:
    return SimpleNamespace(
        choice=SimpleNamespace(kind=kind, why="made up", library="libmadeup.so"),
        props=SimpleNamespace(name="AMD Instinct MI300X", arch="gfx942"),
    )


def lowered_with(kind: str, platform: str) -> Callable[[pytest.MonkeyPatch], Any]:
    def lower(patch: pytest.MonkeyPatch) -> Any:
        patch.setattr(targets.runtime, "get", lambda *_: bound_to(kind))
        return export.export(jax.jit(lambda q: aj.rms_norm(q, q[0, 0, 0])), platforms=[platform])(Q)

    return lower


def two_runtimes(patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(targets.binding, "mapped_runtimes", lambda: ["/a/libamdhip64.so.7"])
    return lowered_with("gpu", "rocm")(patch)


def cut_kv_heads(patch: pytest.MonkeyPatch) -> Any:
    mesh = Mesh(np.array(jax.devices("cpu")[:4]), ("tp",))
    q = jax.device_put(Q, NamedSharding(mesh, P(None, None, "tp")))
    return jax.jit(aj.flash_attn_func)(q, Q[:, :, :2], Q[:, :, :2])


def without_jax(patch: pytest.MonkeyPatch) -> Any:
    import importlib

    patch.setitem(sys.modules, "jax", None)
    return importlib.reload(aj)


def python(code: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise RuntimeError(found.stderr)


# Texts of the page's table, and what brings them; None: other tests make these.
CALLS: dict[str, Callable[[pytest.MonkeyPatch], Any] | None] = {
    "amdattn.jax needs JAX, which is not installed": without_jax,
    "has no backward kernel yet": lambda _: jax.grad(
        lambda q: aj.merge_state(q[None], jnp.zeros((1, 1, 4, 8)))[0].astype(jnp.float32).sum()
    )(Q),
    "JAX runs on the CPU, but amdattn is bound to a GPU": lowered_with("gpu", "cpu"),
    "JAX runs on a GPU, but amdattn is bound to the virtual device": lowered_with(
        "virtual", "rocm"
    ),
    "This process also has ... libamdhip64": two_runtimes,
    "is lowered for tpu": lowered_with("virtual", "tpu"),
    "num_heads_kv=2 cannot be cut in 4 parts along mesh axes ('tp',)": cut_kv_heads,
    "no kernel takes bias": lambda _: aj.dot_product_attention(Q, Q, Q, jnp.zeros((1, 1, 1, 1))),
    "query has dtype float32": lambda _: aj.dot_product_attention(*(Q.astype(jnp.float32),) * 3),
    "its plan is of another version of amdattn, or damaged": None,
    "this program was lowered with another version of amdattn": lambda _: targets._kernel_of(
        b"0" * 16
    ),
    "operand 0 has 512 bytes, in the plan 1024": None,
    "hipModuleLaunchKernel: error": None,
    "No FFI handler registered for amdattn.attention": lambda _: python(
        "import jax\n"
        "x = jax.ShapeDtypeStruct((4,), 'float32')\n"
        "jax.jit(lambda y: jax.ffi.ffi_call('amdattn.attention', x)(y))(jax.numpy.ones(4))\n"
    ),
    "Cannot serialize code with custom calls whose targets have no compatibility guarantees": (
        lambda _: export.export(jax.jit(lambda q: aj.flash_attn_func(q, q, q)))(Q).serialize()
    ),
    "whose value cannot be read here": lambda _: jax.jit(
        lambda scale: aj.flash_attn_func(Q, Q, Q, softmax_scale=scale)
    )(1.0),
}


def test_every_row_is_made() -> None:
    table = PAGE.partition("## Errors, by their text")[2].partition("\n## ")[0]
    texts = [row.split("`")[1] for row in table.splitlines() if row.startswith("| `")]
    assert texts == list(CALLS)


@pytest.mark.parametrize("text", [text for text, call in CALLS.items() if call])
def test_the_error_is_as_the_page_says(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = CALLS[text]
    assert call is not None
    with pytest.raises(Exception) as raised:
        call(monkeypatch)
    parts = map(re.escape, text.split(" ... "))
    assert re.search(".*".join(parts), str(raised.value)), raised.value
