"""Tokens that are drawn from logits."""
