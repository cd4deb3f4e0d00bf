"""Looking before training: probes gather facts, the rules judge them. The function is `stayfinite.preflight`."""
