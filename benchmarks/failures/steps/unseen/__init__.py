"""Short trainings that no tool was built with in view."""
