"""Watch a program through torch hooks, one topic per file."""
