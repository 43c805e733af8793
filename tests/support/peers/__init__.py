"""Kernels of other projects: how they are launched, and what was found in them."""
