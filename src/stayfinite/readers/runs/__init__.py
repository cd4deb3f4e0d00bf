"""Read growing run directories incrementally."""
