"""Why training fails: one rule a file, grouped in families; one registry; one way of ranking what they see."""
