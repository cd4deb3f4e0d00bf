"""The real model on the bench: the passes over it that probes share, watched, and everything put back afterwards."""
