"""Joint text and latent diffusion: data, model, noise, losses, sampler."""
