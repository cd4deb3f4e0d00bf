"""One file a question that is put to the real model, optimizer and batch."""
