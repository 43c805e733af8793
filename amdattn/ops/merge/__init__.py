"""Merging attention over disjoint sets of keys."""
