"""Post-training failures with a finite loss: signs, signal statistics, tests, and the watch over a run."""
