"""Gradients of attention."""
