"""The parts of ``benchmarks/gpu.py`` and ``benchmarks/guard_overhead.py``."""
