"""Matrix products: problem, planning, public functions."""
