"""Check configs, scripts, notebooks and commands before a launch. Executes nothing and needs no torch."""
