"""Trainings that a guard must leave alone, trainings that it must rescue, and the ways of taking their steps."""
