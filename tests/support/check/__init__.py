"""Planted defects, bare waves with uninitialised bits, and what LLVM says of hazards."""
