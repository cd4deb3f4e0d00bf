"""Parts shared by the encoder-decoder recipes: texts, tokenizers, models, batches, generation, scores."""
