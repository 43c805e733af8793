"""Ahead-of-time build of the code objects in hsaco/: rebuild, describe, verify."""
