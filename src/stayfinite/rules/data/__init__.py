"""Rows, labels, tokens and inputs."""
