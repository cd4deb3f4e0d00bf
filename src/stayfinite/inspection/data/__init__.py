"""Check training data against the tokenizer and the length limit."""
