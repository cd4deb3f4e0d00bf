"""What every program needs round its loop: a device, an optimizer, a log, the best model so far."""
