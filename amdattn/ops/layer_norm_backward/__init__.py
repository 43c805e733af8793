"""Gradients of normalised rows, with all options of `layer_norm`."""
