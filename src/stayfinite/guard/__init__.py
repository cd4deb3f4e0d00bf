"""Acting during training: the gate in front of the weights, and the guard that people call."""
