"""Known causes of failing trainings: one rule per file in families, one registry, one ranking."""
