"""The device that the tests of this folder launch on."""

from gpu import gpu

__all__ = ["gpu"]
