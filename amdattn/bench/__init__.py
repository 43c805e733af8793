"""Benchmarks of operations and of foreign kernels: modelled on the virtual device, or measured.

`shapes` says what to run, `kernels` what to run it with, `sampling` and `replay` how a launch of
any size is modelled from small ones, `record` what is reported.
"""
