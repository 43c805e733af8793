"""Rows divided by scales and rounded to 8 bits."""
