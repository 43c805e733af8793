"""What `amdattn selftest --report` does: facts, probes, kernels, times; a JSON and a Markdown file.

Everything that touches the device runs in a child process, step by step, each with a time limit.
The process that writes the report never does, so that whatever hangs, the report is written.
"""
