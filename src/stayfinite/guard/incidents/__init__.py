"""Bad steps: what went through the forward pass, captured on disk, run again and explained."""
