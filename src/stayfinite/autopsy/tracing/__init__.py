"""Watching a computation operator by operator: what each did to its values, in which line, and where bad ones began."""
