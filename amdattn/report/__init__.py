"""The steps of `amdattn selftest --report`: facts, probes, kernels, times, and their files.

Everything that touches the device runs in a child process, step by step, each with a time limit.
The process that writes the report never touches it, so that the report is written whatever hangs.
"""
