"""Where each tensor is in a file, from headers and tables only."""
