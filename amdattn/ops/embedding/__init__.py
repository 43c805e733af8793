"""Rows of a table, by their indices."""
