"""Turn tensors into signals on the device, in one pass and without a sync. Judging and acting happen elsewhere."""
