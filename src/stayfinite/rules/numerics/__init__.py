"""Losses and models with unstable arithmetic."""
