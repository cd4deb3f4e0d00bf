"""A public benchmark of training failures: ``python -m benchmarks.failures``. README.md tells how to add to it."""
