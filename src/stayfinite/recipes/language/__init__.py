"""Language modeling on raw text: reading, blocks, masking, order, evaluation, generation."""
