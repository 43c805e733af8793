"""The page that judges the performance model: published figures, simulations and what follows."""
