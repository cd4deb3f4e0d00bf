"""Watch an unmodified program from outside: explain its bad step, examine its training, patch its file."""
