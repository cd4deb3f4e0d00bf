"""Probes of the real model, optimizer and batch, one file per question."""
