"""One training step: run as it was, traced, or run with a change that is put back."""
