"""Report what the guard did: run directory, terminal, summary, page. Never changes the training."""
