"""A guarded step recorded as CUDA graphs, with the veto inside."""
