"""Numbers that leave the range or the resolution of their format."""
