"""One-line integrations; each framework is imported only by its own file."""
