"""Read checkpoints on disk and report findings. Only ``values`` needs torch."""
