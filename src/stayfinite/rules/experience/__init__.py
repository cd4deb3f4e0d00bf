"""Causes of similar runs, weighted by the labeled public cases, for reports without clearer evidence."""
