"""Mutants of code objects, and whether checked mode reports them."""
