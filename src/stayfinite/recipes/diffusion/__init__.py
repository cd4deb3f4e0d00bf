"""Joint text and latent diffusion: its data, its model, its noise, its losses, its sampler."""
