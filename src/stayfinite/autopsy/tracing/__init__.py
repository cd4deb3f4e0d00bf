"""Watch a computation operator by operator: values, source lines, and where bad values began."""
