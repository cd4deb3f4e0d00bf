"""The gate in front of the weights: what it reads, who judges, and what a step changes."""
