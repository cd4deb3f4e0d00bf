"""Detect inputs that were preprocessed differently, by mean and standard deviation."""

import math

OTHER_SPREAD = 2.5
"""Ratio of standard deviations, ..."""
OTHER_MEAN = 2.5
"""... or distance of means in standard deviations, above which preprocessing differs."""


def prepared_differently(mean: float, spread: float, other_mean: float, other_spread: float) -> bool:
    """Whether these statistics come from differently preprocessed inputs."""
    if not all(map(math.isfinite, (mean, spread, other_mean, other_spread))) or min(spread, other_spread) <= 0:
        return False
    ratio = other_spread / spread
    shift = abs(other_mean - mean) / max(spread, other_spread)
    if not 1 / OTHER_SPREAD < ratio < OTHER_SPREAD or shift >= OTHER_MEAN:
        return True
    return (_is_standard(mean, spread) and _is_raw(other_mean, other_spread)) or (
        _is_standard(other_mean, other_spread) and _is_raw(mean, spread)
    )


def in_words(mean: float, spread: float, other_mean: float, other_spread: float) -> str:
    """Describe both for people."""
    return (
        f"training inputs have mean {mean:.3g} and std {spread:.3g}, "
        f"validation inputs mean {other_mean:.3g} and std {other_spread:.3g}"
    )


def _is_standard(mean: float, spread: float) -> bool:
    return abs(mean) < 0.15 and 0.85 < spread < 1.15


def _is_raw(mean: float, spread: float) -> bool:
    return abs(mean) > 1.0 * spread or spread < 0.6 or spread > 1.7
