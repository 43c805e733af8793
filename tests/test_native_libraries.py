"""Python in the root of a checkout that was not built, beside an install: what it uses and says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amdattn import native_libraries
from amdattn.device.virtual_library import library_path
from tests.support.paths import ROOT

LINKED = ("virtual_device", "hsaco", "asm_src", "build_scripts", "benchmarks")
ATTEND = """
import numpy as np, amdattn
x = np.ones((1, 8, 2, 64), np.float16)
print(amdattn.__file__, (amdattn.flash_attn_func(x, x, x) == 1).all())
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Of the same sources as this one, without libraries."""
    root = tmp_path / "checkout"
    shutil.copytree(
        ROOT / "amdattn", root / "amdattn", ignore=shutil.ignore_patterns("_lib", "__pycache__")
    )
    for name in LINKED:
        (root / name).symlink_to(ROOT / name)
    return root


def install(folder: Path, root: Path) -> Path:
    """As `pip install .` leaves the libraries of a checkout; their folder."""
    libraries = folder / "amdattn" / native_libraries.FOLDER
    libraries.mkdir(parents=True)
    (libraries / library_path().name).symlink_to(library_path())
    native_libraries.record(root, libraries)
    facts = folder / "amdattn-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: amdattn\nVersion: 0.1\n")
    return libraries


def run(root: Path, site: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Python in the root of a checkout, with an install on its path."""
    environment = {
        **{name: value for name, value in os.environ.items() if "VDEV_LIBRARY" not in name},
        "PYTHONPATH": str(site),
    }
    return subprocess.run(
        [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True,
        check=False, timeout=100,
    )  # fmt: skip


def test_an_install_of_the_same_sources_serves(checkout: Path, tmp_path: Path) -> None:
    libraries = install(tmp_path / "site", checkout)
    done = run(checkout, tmp_path / "site", "-c", ATTEND)
    assert done.stdout == f"{checkout / 'amdattn' / '__init__.py'} True\n", done.stderr
    done = run(checkout, tmp_path / "site", "-m", "amdattn.cli", "info", "--json")
    assert (
        f"that of the installed amdattn in {libraries.parent}, of the same sources" in done.stdout
    )
    done = run(checkout, tmp_path / "site", "-m", "benchmarks.attention_peers", "--help")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "changed", ["virtual_device/core/new.cc", "build_scripts/virtual_device.py", "none recorded"]
)
def test_an_install_of_other_sources_does_not(checkout: Path, tmp_path: Path, changed: str) -> None:
    libraries = install(tmp_path / "site", checkout)
    if changed == "none recorded":
        (libraries / native_libraries.DIGEST).unlink()
    else:
        folder = checkout / changed.partition("/")[0]
        folder.unlink()
        shutil.copytree(ROOT / folder.name, folder)
        with (checkout / changed).open("a") as file:
            file.write("\n")
    done = run(checkout, tmp_path / "site", "-c", ATTEND)
    error = done.stderr.strip().splitlines()[-1]
    assert error.startswith(
        f"amdattn.errors.BindingError: amdattn is imported from the checkout {checkout}, in which "
        f"no library was built; that of the installed amdattn in {libraries.parent} was built from "
        f"other sources. `{sys.executable} -m pip install -e {checkout}` builds one there;"
    ), error


def test_a_checkout_alone(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # no install, and no egg-info of this one
    found = native_libraries.find(checkout / "amdattn")
    assert not found.is_installed and found.folder == checkout / "amdattn" / "_lib"
    done = run(checkout, tmp_path, "-c", ATTEND)
    assert "in which no library was built. `" in done.stderr and "pip install -e" in done.stderr


def test_what_lies_beside_the_package_goes_first(checkout: Path, tmp_path: Path) -> None:
    install(tmp_path / "site", checkout)
    own = checkout / "amdattn" / "_lib"
    own.mkdir()
    (own / library_path().name).symlink_to(library_path())
    assert native_libraries.find(checkout / "amdattn") == native_libraries.Found(own)
