"""Build hook: compiles libraries, and places code objects and headers in the package.

Everything declarative is in pyproject.toml. `AMDATTN_LEVELS` says for which x86-64 levels the
virtual device is compiled, `AMDATTN_CXX` with what: build_scripts/virtual_device.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from amdattn import native_libraries  # noqa: E402  (ROOT is not on the path before)
from build_scripts import jax_handler, virtual_device  # noqa: E402  (ROOT is not on the path before)


class BuildPackage(build_py):
    """Adds the compiled libraries, the code objects and the kernarg headers."""

    def run(self) -> None:
        """Compile, then copy what is not Python."""
        super().run()
        package = ROOT / "amdattn" if self.editable_mode else Path(self.build_lib) / "amdattn"
        virtual_device.build(
            virtual_device.requested_levels(os.environ.get("AMDATTN_LEVELS", "")),
            package / "_lib",
            ROOT / "build" / "virtual_device",
            len(os.sched_getaffinity(0)),
        )
        jax_handler.build(package / "_lib")
        native_libraries.record(ROOT, package / "_lib")
        if not self.editable_mode:  # a checkout finds both beside the package
            shutil.rmtree(package / "hsaco", ignore_errors=True)  # what an earlier build left
            shutil.copytree(ROOT / "hsaco", package / "hsaco")
            shutil.copytree(ROOT / "asm_src" / "args", package / "_args", dirs_exist_ok=True)


class PlatformWheel(bdist_wheel):
    """One wheel for every CPython: native code is loaded with ctypes and cffi, not imported."""

    def finalize_options(self) -> None:
        """Mark the wheel as native."""
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self) -> tuple[str, str, str]:
        """Name the machines that the libraries run on."""
        request = os.environ.get("AMDATTN_LEVELS", "")
        own_compiler = bool(virtual_device.own_compiler())
        return "py3", "none", virtual_device.wheel_platform(request, own_compiler)


setup(cmdclass={"build_py": BuildPackage, "bdist_wheel": PlatformWheel})
