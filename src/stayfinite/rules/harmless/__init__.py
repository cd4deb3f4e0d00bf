"""Alarming but harmless."""
