"""examples/llama: files of tensors, and what is wrong with them, by the tensor's name."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from examples.llama.checkpoint import Checkpoint
from examples.llama.config import parse
from examples.llama.small_models import config_of, tensors_of, write, write_safetensors
from examples.llama.weights import check

CONFIG = config_of("llama2")
UP = "model.layers.1.mlp.up_proj.weight"


def test_tensors_are_mapped_as_they_are(tmp_path: Path) -> None:
    tensors = tensors_of(CONFIG)
    for folder, shards in (("one", 1), ("three", 3)):
        checkpoint = Checkpoint(write(tmp_path / folder, CONFIG, tensors, shards))
        check(checkpoint, parse(CONFIG))
        assert checkpoint.places.keys() == tensors.keys()
        for name, tensor in tensors.items():
            found = checkpoint.tensor(name)
            assert found.dtype == ml_dtypes.bfloat16 and not found.flags.owndata
            assert not found.flags.writeable and found.shape == tensor.shape
            assert found.tobytes() == tensor.tobytes()


def test_as_the_library_of_the_format_reads_and_writes_it(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    tensors = tensors_of(CONFIG)
    write(tmp_path, CONFIG, tensors)
    read = library.load_file(tmp_path / "model.safetensors")
    assert {n: x.tobytes() for n, x in read.items()} == {n: x.tobytes() for n, x in tensors.items()}
    wide = {name: x.astype(np.float32) for name, x in tensors.items()}
    library.save_file(wide, tmp_path / "model.safetensors")
    checkpoint = Checkpoint(tmp_path)
    assert all((checkpoint.tensor(name) == x).all() for name, x in wide.items())


@pytest.mark.parametrize(
    ("bend", "text"),
    [
        (lambda t: t.pop(UP), f"tensor {UP} is missing: LlamaForCausalLM"),
        (lambda t: t.update({UP: t[UP][1:]}), rf"{UP} has shape \(95, 64\); .* it is \(96, 64\)"),
        (
            lambda t: t.update({"model.layers.2.x.weight": t[UP]}),
            "tensor model.layers.2.x.weight is unknown",
        ),
    ],
    ids=["missing", "shape", "unknown"],
)
def test_what_does_not_fit_the_config(tmp_path: Path, bend: object, text: str) -> None:
    tensors = tensors_of(CONFIG)
    bend(tensors)  # type: ignore[operator]
    with pytest.raises(ValueError, match=text):
        check(Checkpoint(write(tmp_path, CONFIG, tensors)), parse(CONFIG))


def test_tensors_that_nothing_needs(tmp_path: Path) -> None:
    """Angles of old files, and a head that the embedding is."""
    config = {**CONFIG, "tie_word_embeddings": True}
    tensors = tensors_of(CONFIG)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(8, np.float32)
    check(Checkpoint(write(tmp_path, config, tensors)), parse(config))


def test_a_tied_model_needs_no_head(tmp_path: Path) -> None:
    tensors = tensors_of({**CONFIG, "tie_word_embeddings": True})
    checkpoint = Checkpoint(write(tmp_path, CONFIG, tensors))
    check(checkpoint, parse({**CONFIG, "tie_word_embeddings": True}))
    with pytest.raises(ValueError, match=r"tensor lm_head.weight is missing"):
        check(checkpoint, parse(CONFIG))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has neither model.safetensors nor model.safetensors.i"):
        Checkpoint(tmp_path)


def test_broken_files(tmp_path: Path) -> None:
    file = write(tmp_path, CONFIG) / "model.safetensors"
    whole = file.read_bytes()
    for content, text in (
        (whole[:4], "is no safetensors file, or is cut short"),
        (whole[:100], "is no safetensors file, or is cut short"),
        (whole[:-1], "tensor lm_head.weight does not fit its bytes"),
        (whole[:9] + b"}" + whole[10:], "has a broken header"),
        ((2).to_bytes(8, "little") + b"[]", "has a broken header"),
        ((8).to_bytes(8, "little") + b'{"a": 1}', "has a broken header"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=text):
            Checkpoint(tmp_path)


def test_types_that_no_kernel_here_takes(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write_safetensors(file, {"a": np.zeros(4, np.float32)})
    file.write_bytes(file.read_bytes().replace(b'"F32"', b'"F64"'))
    with pytest.raises(
        ValueError, match="tensor a has dtype F64; it must be one of BF16, F16, F32"
    ):
        Checkpoint(tmp_path)


def test_an_index_that_disagrees(tmp_path: Path) -> None:
    write(tmp_path, CONFIG, shards=2)
    index = tmp_path / "model.safetensors.index.json"
    whole = json.loads(index.read_text())

    def bent(**change: object) -> None:
        files = {**whole["weight_map"], **change}
        files = {name: file for name, file in files.items() if file is not None}
        index.write_text(json.dumps({"weight_map": files}))

    first = "model-00001-of-00002.safetensors"
    for change, text in (
        ({"extra": first}, f"tensor extra is missing: .* has it in {first}"),
        ({UP: None}, f"tensor {UP} of .* is not there"),
        ({UP: "gone.safetensors"}, "names gone.safetensors, which is not in"),
        ({UP: "../x.safetensors"}, r"names \.\./x.safetensors, which is not in"),
    ):
        bent(**change)
        with pytest.raises(ValueError, match=text):
            Checkpoint(tmp_path)
    index.write_text("{}")
    with pytest.raises(ValueError, match="has no weight_map"):
        Checkpoint(tmp_path)
