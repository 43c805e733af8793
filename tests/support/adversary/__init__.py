"""Inputs that are meant to break attention kernels, and the judge of what comes of them."""
