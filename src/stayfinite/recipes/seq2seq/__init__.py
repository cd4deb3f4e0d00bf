"""What the programs for encoder-decoder models share: texts, tokenizers, models, batches, generation, scores."""
