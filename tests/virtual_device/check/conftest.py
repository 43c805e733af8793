"""Fixtures for tests of checked mode."""

from tests.support.check.checked_launch import checked

__all__ = ["checked"]
