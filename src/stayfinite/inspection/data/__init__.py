"""Training data before training: what its rows come to, held against the tokenizer and the length limit."""
