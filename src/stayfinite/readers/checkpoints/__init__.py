"""Checkpoints on disk -> facts and findings. ``formats`` and what lies beside it need no torch; ``values`` does."""
