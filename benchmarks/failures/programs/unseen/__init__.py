"""Programs that no tool was built with in view."""
