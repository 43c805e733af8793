"""Rotary embedding of queries and keys, and the tables that it takes."""
