"""How much memory a training takes, from the shape of its model alone. No torch."""
