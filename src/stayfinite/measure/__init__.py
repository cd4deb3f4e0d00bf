"""Tensors to signals: on the device, in one pass, without waiting for it. Judging and acting are done elsewhere."""
