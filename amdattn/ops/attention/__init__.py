"""Attention: problem, planning, public functions."""
