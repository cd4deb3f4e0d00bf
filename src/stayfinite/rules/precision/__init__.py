"""Numbers beyond the range or resolution of their format."""
