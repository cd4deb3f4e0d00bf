"""Stream data larger than memory: many files, shuffled in windows, shared among ranks and workers, resumable."""
