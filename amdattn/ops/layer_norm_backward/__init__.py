"""Gradients of normalised rows, of all that `layer_norm` does."""
