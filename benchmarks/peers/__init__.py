"""Attention kernels of other projects as benchmarks run them; see docs/bench.md."""
