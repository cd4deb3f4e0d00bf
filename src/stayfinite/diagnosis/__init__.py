"""A run, a log, a config, a checkpoint -> ranked findings."""
