"""Complete training programs: one file each, read top to bottom, with one dataclass of settings."""
