"""Run the program again in its own process up to its bad step, for steps that cannot be replayed.

Both runs start from the same generator states and hash seed. Only the bad step is traced.
"""
