"""Hostile code objects: seeds, mutations, the driver and the campaign."""
