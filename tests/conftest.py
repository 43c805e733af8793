"""Every test runs on the installed virtual device, unless AMDATTN_VDEV_LIBRARY names another."""

import os

from amdattn.virtual_library import library_path

os.environ.setdefault("AMDATTN_VDEV_LIBRARY", str(library_path()))
os.environ.setdefault("AMDATTN_DEVICE", "virtual:gfx942")
