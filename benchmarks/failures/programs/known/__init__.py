"""Programs that tools were built with in view."""
