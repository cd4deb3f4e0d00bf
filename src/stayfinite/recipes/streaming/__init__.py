"""Data that does not fit memory: rows of many files, shuffled in windows, dealt to ranks and workers, resumable."""
