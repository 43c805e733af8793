"""Attention of few queries over a cache of keys and values."""
