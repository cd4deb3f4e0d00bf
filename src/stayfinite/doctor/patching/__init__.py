"""Patch the user's file for the top finding. A patch is verified only by running a patched copy."""
