"""Parts shared by the recipes' loops: device, optimizer, log, best model."""
