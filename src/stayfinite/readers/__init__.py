"""Read the files of other tools as facts: no judging, no executing, bounded memory, truncated files tolerated."""
