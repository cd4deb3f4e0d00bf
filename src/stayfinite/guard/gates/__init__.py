"""The gate in front of the weights: what it reads, who judges, and all that a step changes or leaves alone."""
