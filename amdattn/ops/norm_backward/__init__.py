"""Gradients of RMS normalisation."""
