"""Pairwise image comparison: data, folds, prompt, model, losses, evaluation."""
