"""Complete, stable training programs. Each is one file that reads top to bottom, with one dataclass of settings."""
