"""What is known of the hardware: products, partitions, rates, energies."""
