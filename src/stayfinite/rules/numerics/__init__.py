"""Losses and models whose arithmetic fails by itself."""
