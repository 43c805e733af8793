"""Kernels that the mutation campaign of checked mode changes, and the campaign."""
