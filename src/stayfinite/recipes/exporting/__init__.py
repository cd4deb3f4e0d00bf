"""A trained model as others load it: `stayfinite export`."""
