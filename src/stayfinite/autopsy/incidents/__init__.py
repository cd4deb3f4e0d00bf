"""Incidents on disk: written beside training, read back, put into a model that is built anew, replayed."""
