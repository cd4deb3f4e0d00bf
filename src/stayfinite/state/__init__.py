"""Training state: capture, restore, snapshots in memory, checkpoints on disk."""
