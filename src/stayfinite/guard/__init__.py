"""Act during training: the gate in front of the weights, and the guard that users call."""
