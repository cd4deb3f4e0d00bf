"""One file a family of models: its parts, its weights and what they keep."""
