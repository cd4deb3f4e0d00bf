"""Thousands of ranks in one process: the guard's own protocols, with losses, delays, crashes and restarts made up."""
