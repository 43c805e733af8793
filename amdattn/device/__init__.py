"""The HIP runtime of a GPU or of the virtual device; no other package knows which."""
