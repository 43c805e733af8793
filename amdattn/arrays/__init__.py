"""Arrays: the package's own, and those of others that calls take. Never imports torch or jax."""
