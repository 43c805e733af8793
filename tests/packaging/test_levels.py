"""Which x86-64 levels an install builds, how its wheel is tagged, and which library is loaded."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from amdattn import paths
from amdattn.device import virtual_library, x86_level
from amdattn.errors import BindingError
from build_scripts import virtual_device
from build_scripts.virtual_device import requested_levels, wheel_platform
from tests.support.paths import ROOT

V2_FLAGS = {"cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3"}
V3_FLAGS = V2_FLAGS | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
MANYLINUX, THIS_MACHINE = "manylinux_2_28_x86_64", "linux_x86_64"


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the flags of the CPU."""

    def has(flags: set[str]) -> None:
        monkeypatch.setattr(x86_level, "_cpu_flags", lambda: flags | {"fpu", "avx512f"})

    return has


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        (V3_FLAGS, ("v2", "v3")),
        *((V3_FLAGS - {flag}, ("v2",)) for flag in sorted(V3_FLAGS - V2_FLAGS)),
        *((V3_FLAGS - {flag}, ()) for flag in sorted(V2_FLAGS)),
    ],
)
def test_levels_of_a_cpu(cpu: Any, flags: set[str], levels: tuple[str, ...]) -> None:
    cpu(flags)
    assert x86_level.runnable_levels() == levels


def test_an_install_builds_the_level_of_this_cpu(cpu: Any) -> None:
    cpu(V3_FLAGS)
    assert requested_levels("") == ("v3",)
    cpu(V2_FLAGS)
    assert requested_levels("") == ("v2",)
    cpu(set())
    with pytest.raises(RuntimeError, match="older than x86-64-v2"):
        requested_levels("")


@pytest.mark.parametrize(
    ("request_", "levels"),
    [("all", ("v2", "v3")), ("v3, v2", ("v2", "v3")), ("v2", ("v2",)), ("v3", ("v3",))],
)
def test_levels_can_be_asked_for_on_any_cpu(
    cpu: Any, request_: str, levels: tuple[str, ...]
) -> None:
    cpu(set())
    assert requested_levels(request_) == levels


@pytest.mark.parametrize("request_", ["v4", "v2,", "ALL", "v2 v3", "native"])
def test_unknown_levels_are_refused(request_: str) -> None:
    with pytest.raises(ValueError, match=r"AMDATTN_LEVELS='.*' must be 'all' or a list of v2, v3"):
        requested_levels(request_)


@pytest.mark.parametrize(
    ("request_", "own_compiler", "platform"),
    [
        ("", False, THIS_MACHINE),
        ("v3", False, THIS_MACHINE),  # manylinux promises older CPUs as well
        ("all", False, MANYLINUX),
        ("v2", False, MANYLINUX),
        ("v2,v3", False, MANYLINUX),
        ("all", True, THIS_MACHINE),  # it links the glibc that it finds
    ],
)
def test_the_tag_says_where_the_wheel_runs(
    cpu: Any, request_: str, own_compiler: bool, platform: str
) -> None:
    cpu(V2_FLAGS)
    assert wheel_platform(request_, own_compiler) == platform


@pytest.mark.parametrize(
    ("request_", "levels", "platform"),
    [(None, ("v3",), THIS_MACHINE), ("all", ("v2", "v3"), MANYLINUX)],
)
def test_the_install_hook_follows(
    cpu: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request_: str | None,
    levels: tuple[str, ...],
    platform: str,
) -> None:
    setuptools = pytest.importorskip("setuptools", minversion="77")
    cpu(V3_FLAGS)
    monkeypatch.delenv("AMDATTN_CXX", raising=False)
    monkeypatch.delenv("AMDATTN_LEVELS", raising=False)
    if request_ is not None:
        monkeypatch.setenv("AMDATTN_LEVELS", request_)
    commands: dict[str, Any] = {}
    built: list[tuple[str, ...]] = []
    monkeypatch.setattr(setuptools, "setup", lambda *, cmdclass: commands.update(cmdclass))
    monkeypatch.setattr(virtual_device, "build", lambda levels, *_: built.append(levels))
    monkeypatch.setattr(sys, "path", list(sys.path))
    runpy.run_path(str(ROOT / "setup.py"))
    distribution = setuptools.Distribution({"name": "amdattn", "packages": []})
    build = commands["build_py"](distribution)
    build.build_lib = str(tmp_path)
    build.packages = build.py_modules = build.package_data = build.data_files = []
    build.run()
    assert built == [levels]
    assert (tmp_path / "amdattn" / "hsaco" / "manifest.json").is_file()
    assert commands["bdist_wheel"](distribution).get_tag() == ("py3", "none", platform)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Makes an install that has the libraries of some levels."""
    monkeypatch.delenv("AMDATTN_VDEV_LIBRARY", raising=False)
    monkeypatch.setattr(paths, "native_library_dir", lambda: tmp_path)

    def has(*levels: str) -> None:
        for level in levels:
            (tmp_path / x86_level.library_name(level)).touch()

    return has


@pytest.mark.parametrize(
    ("flags", "built", "chosen"),
    [
        (V3_FLAGS, ("v2", "v3"), "v3"),
        (V3_FLAGS, ("v3",), "v3"),
        (V3_FLAGS, ("v2",), "v2"),
        (V2_FLAGS, ("v2", "v3"), "v2"),
    ],
)
def test_the_newest_library_that_fits_is_loaded(
    cpu: Any, install: Any, flags: set[str], built: tuple[str, ...], chosen: str
) -> None:
    cpu(flags)
    install(*built)
    assert virtual_library.library_path().name == x86_level.library_name(chosen)


@pytest.mark.parametrize(
    ("flags", "built", "message"),
    [
        (V2_FLAGS, ("v3",), r"runs x86-64 levels v2, and .* has v3\..*AMDATTN_LEVELS=all"),
        (set(), ("v2", "v3"), r"runs x86-64 levels none, and .* has v2, v3\."),
        (V3_FLAGS, (), r"runs x86-64 levels v2, v3, and .* has none\..*--no-cache-dir"),
    ],
)
def test_an_install_for_another_cpu_says_so(
    cpu: Any, install: Any, flags: set[str], built: tuple[str, ...], message: str
) -> None:
    cpu(flags)
    install(*built)
    with pytest.raises(BindingError, match=message):
        virtual_library.library_path()


def test_a_cpu_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch, install: Any) -> None:
    def refuse() -> set[str]:
        raise FileNotFoundError("/proc/cpuinfo")

    install("v2")
    monkeypatch.setattr(x86_level, "_cpu_flags", refuse)
    with pytest.raises(BindingError, match=r"is unknown: /proc/cpuinfo"):
        virtual_library.library_path()


def test_a_named_library_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AMDATTN_VDEV_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(BindingError, match=r"AMDATTN_VDEV_LIBRARY=.* does not exist"):
        virtual_library.library_path()
