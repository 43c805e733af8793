"""Matrix products with few rows: problem, planning, public functions."""
