"""Evaluate a script's values through its statements, calls, branches and local modules.

A partial evaluation: nothing is executed or imported, and values known only at run time are unknown.

- `values`: kinds of values, undoable writes to them. `state`: names, frames, limits, copies, merges; what is assumed.
- `expressions`, `names`: expressions. `statements`: statements, branches, loops.
- `calls`: functions and classes of the script. `libraries`, `pure`: known library calls and operators.
- `parsers`, `data_files`: external values. `modules`: files next to the script.
- `program`: the entry point, and which values become settings.
"""
