"""Run directories that are being written: read what is new, and nothing twice."""
