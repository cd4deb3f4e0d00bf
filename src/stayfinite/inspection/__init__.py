"""Checks before training: probes gather facts, rules judge them. The entry point is `stayfinite.preflight`."""
