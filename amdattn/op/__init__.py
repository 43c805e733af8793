"""What every operation shares; it names none of them."""
