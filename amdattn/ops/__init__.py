"""The operations."""
