"""Benchmarks of operations and of foreign kernels: modelled on the virtual device, or measured.

`shapes` holds the shapes to run and `kernels` the launches and their operands. `item_sampling` and
`replay` model a launch of any size from small ones. `record` holds what is reported.
"""
