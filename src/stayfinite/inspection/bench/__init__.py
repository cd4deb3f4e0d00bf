"""Run watched passes of the real model for probes, and restore everything afterwards."""
