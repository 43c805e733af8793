"""Evidence of this project's own: comparisons, campaigns and the published pages' scripts."""
