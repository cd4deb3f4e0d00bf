"""Plain programs with planted faults, and healthy ones that look alike, for any_program.py."""
