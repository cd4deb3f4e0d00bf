"""Incidents on disk: written in the background, read back, loaded into a rebuilt model, replayed."""
