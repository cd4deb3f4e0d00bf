"""Per-module precision plans: measure, plan, apply."""
