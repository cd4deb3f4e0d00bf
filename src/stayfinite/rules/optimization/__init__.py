"""Learning rates, schedules, clipping, and use of the optimizer."""
