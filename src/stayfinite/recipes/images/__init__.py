"""Pairs of images and the model that compares them: data, folds, prompt, model, losses, evaluation."""
