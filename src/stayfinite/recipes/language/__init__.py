"""Raw text for a language model: reading, cutting into blocks, masking, order, evaluation, generation."""
