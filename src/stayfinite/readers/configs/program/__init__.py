"""Evaluate a script's values through its statements, calls, branches and local modules.

A partial evaluation: nothing is executed or imported, and values known only at run time are unknown.

- `state`: kinds of values, undoable writes to them, names, frames, limits, copies, merges; what is assumed.
- `names`: names, attributes, operators and functions of plain data.
- `expressions`: expressions and calls of the script. `statements`: statements, branches, loops.
- `libraries`: known library calls and parsers. `files`: configs and modules next to the script.
- `weights`: in which dtype the training of a model begins.
- `program`: the entry point, and which values become settings.
"""
