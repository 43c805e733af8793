"""What every operation shares. Names none of them."""
