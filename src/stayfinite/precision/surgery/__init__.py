"""Surgery for fp16: an equivalent network whose activations fit, found on data and proved on it."""

from stayfinite.precision.surgery.keeping import InRange, keep_in_range
from stayfinite.precision.surgery.rescaling import rescale
from stayfinite.precision.surgery.result import Rescaled, matching_groups

__all__ = ["InRange", "Rescaled", "keep_in_range", "matching_groups", "rescale"]
