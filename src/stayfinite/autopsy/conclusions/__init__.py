"""From the pattern of outcomes to a cause: which worlds are finite, which are not, and what the trace saw."""
