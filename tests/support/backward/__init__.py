"""Gradients of attention: calls, and the judge of what comes of them."""
