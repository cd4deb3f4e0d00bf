"""The program once more, in its own process, up to its bad step: for steps whose statements cannot be run again.

Both runs start from the same generators and the same hash seed. The tracer is on in the bad step alone.
"""
