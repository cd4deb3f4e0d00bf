"""Whether two sets of inputs were prepared in the same way, by their mean and standard deviation."""

from __future__ import annotations

import math

OTHER_SPREAD = 2.5
"""Times that one standard deviation has of the other, ..."""
OTHER_MEAN = 2.5
"""... or standard deviations between two means, from which on they were prepared differently."""


def prepared_differently(mean: float, spread: float, other_mean: float, other_spread: float) -> bool:
    """Whether these are means and standard deviations of inputs that went through different preparation."""
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
    """Both, as a person reads them."""
    return (
        f"training inputs have mean {mean:.3g} and std {spread:.3g}, "
        f"validation inputs mean {other_mean:.3g} and std {other_spread:.3g}"
    )


def _is_standard(mean: float, spread: float) -> bool:
    return abs(mean) < 0.15 and 0.85 < spread < 1.15


def _is_raw(mean: float, spread: float) -> bool:
    return abs(mean) > 1.0 * spread or spread < 0.6 or spread > 1.7
