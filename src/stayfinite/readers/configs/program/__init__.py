"""What a script's values come to, followed through its statements, calls, branches and the modules beside it.

A partial evaluation: nothing is executed or imported, and what only a run would tell is unknown.

- `values`: what a value can be. `store`: writes that can be taken back. `joining`: two values that may both be meant.
- `state`: names, frames, and how much may still be done. `surroundings`: the card and the command that are assumed.
- `expressions`, `operators`, `names`, `attributes`: what an expression is worth.
- `statements`, `branches`, `loops`: what a statement does.
- `calls`, `functions`, `classes`, `copies`: functions and classes of the script.
- `libraries`, `devices`, `pure`, `methods`: calls that are known by their names.
- `parsers`, `given`, `data_files`, `hydra`: values from outside. `modules`: files beside the script.
- `telling`: what is worth a setting. `program`: all of it for one script.
"""
