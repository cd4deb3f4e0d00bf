"""A patch of the user's own file for the top finding, called verified only after a patched copy has run."""
