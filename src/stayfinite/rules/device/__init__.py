"""Devices, processes, builds and hardware."""
