"""Learning rates, schedules, clipping, and how the optimizer is driven."""
