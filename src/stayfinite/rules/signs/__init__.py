"""Signs used by rules of several families, each with its own weight."""
