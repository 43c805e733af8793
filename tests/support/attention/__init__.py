"""Members of the attention families, rows like theirs, and float64 attention under masks."""
