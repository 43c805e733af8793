"""Normalisation of rows with a mean, a bias, dropout and results of 8 bits."""
