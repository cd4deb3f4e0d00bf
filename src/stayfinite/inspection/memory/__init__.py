"""Estimate a training's memory from the shape of its model. Needs no torch."""
