"""Live view of runs: on a terminal, as plain lines, or in a browser."""
