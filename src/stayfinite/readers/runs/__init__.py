"""What a guarded run has written, read back without torch, piece by piece while it grows."""
