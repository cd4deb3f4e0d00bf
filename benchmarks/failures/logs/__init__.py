"""Labelled logs of real runs."""
