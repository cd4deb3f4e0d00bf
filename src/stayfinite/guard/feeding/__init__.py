"""Batches: positions in any loader, and batches to skip."""
