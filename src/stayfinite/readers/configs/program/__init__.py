"""Evaluate a script's values through its statements, calls, branches and local modules.

A partial evaluation: nothing is executed or imported, and values known only at run time are unknown.

- `values`: kinds of values. `store`: undoable writes. `joining`: copies and merges of values.
- `state`: names, frames and limits. `surroundings`: the assumed GPU and command.
- `expressions`, `operators`, `names`, `attributes`: expressions.
- `statements`, `branches`, `loops`: statements.
- `calls`, `functions`, `classes`: functions and classes of the script.
- `libraries`, `pure`, `methods`: known library calls.
- `parsers`, `given`, `data_files`, `hydra`: external values. `modules`: files next to the script.
- `telling`: which values become settings. `program`: the entry point.
"""
