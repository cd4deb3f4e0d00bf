"""From outcomes to a cause: which worlds are finite, which are not, and what the trace shows."""
