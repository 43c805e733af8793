"""Checked mode: its findings, their source lines, and which of them are expected.

The virtual device does the checking; this package turns its findings into objects, reports and exit
codes. Scripts use `amdattn.virtual.check`, the terminal `amdattn check`.
"""
