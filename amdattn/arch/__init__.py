"""Facts of the hardware: products, partitions, rates, energies."""
