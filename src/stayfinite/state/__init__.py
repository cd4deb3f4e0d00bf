"""A training state as a whole: capture, restore, snapshots in memory, checkpoints on disk."""
