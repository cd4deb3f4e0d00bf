"""Parts, weights and kept memory of a model family, one file each."""
