"""What a file says about itself: which tensors lie where in it. Reads headers and tables, never values."""
