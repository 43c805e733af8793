"""RMS normalisation of rows, also of the sum with a residual."""
