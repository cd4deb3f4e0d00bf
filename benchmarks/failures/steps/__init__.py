"""Short trainings of which one step is bad, and healthy look-alikes."""
