"""What the guard costs, measured against its peers: each file prints one table in one run."""
