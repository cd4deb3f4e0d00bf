"""Bad steps: recorded forward passes, captured on disk, run again and explained."""
