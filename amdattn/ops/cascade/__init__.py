"""Attention of sequences that share a prefix, which is attended once for all of them."""
