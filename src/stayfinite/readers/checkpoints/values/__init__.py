"""Tensor values, streamed in small pieces on all cores. The only part of this package that needs torch."""
