"""Checked mode: what it found, where it is in the source, which of it is expected.

The virtual device does the checking; here its findings become objects, reports and exit codes.
`amdattn.virtual.check` is the way in for scripts, `amdattn check` for the terminal.
"""
