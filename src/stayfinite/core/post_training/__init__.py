"""Post-training that goes wrong with a finite loss: signs, the course of a signal, tests, and the watch over a run."""
