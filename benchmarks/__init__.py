"""The project's own evidence: comparisons, campaigns, and scripts of the published pages."""
