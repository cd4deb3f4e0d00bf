"""Missing or wrong gradients."""
