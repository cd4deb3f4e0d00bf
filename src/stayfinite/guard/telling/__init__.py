"""What the guard did, for people: the run directory, the terminal, the summary, the page. Changes no training."""
