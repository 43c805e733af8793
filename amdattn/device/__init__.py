"""The HIP runtime, of a GPU or of the virtual device. Nothing outside knows which of the two."""
