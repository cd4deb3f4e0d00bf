"""What configs, scripts, notebooks and commands say of a training before it is launched. Executes nothing, no torch."""
