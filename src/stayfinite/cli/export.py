"""``stayfinite export``: save a trained model as a plain directory."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from stayfinite.cli.ending import command, print_json


@dataclass(frozen=True, kw_only=True)
class Export:
    """Save the best model of a run as a plain transformers directory: weights, tokenizer, generation settings, model
    card. It loads without stayfinite.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """A run directory, or one of its models (runs/sft/best)."""

    out: Annotated[Path, tyro.conf.arg(aliases=["-o", "--output"])]
    """Output directory; must be new or empty."""

    merge: bool = False
    """Merge the adapter into its base and save one whole model."""

    force: bool = False
    """Replace an earlier export in that directory."""

    json: bool = False
    """Print the result as JSON and nothing else."""


@command(Export, also=(OSError,))
def run(settings: Export) -> int:
    """Run the command; 0 if the directory was written, 2 on wrong use."""
    from stayfinite.recipes.exporting.exporting import export

    def say(line: str) -> None:
        print(line, file=sys.stderr if settings.json else sys.stdout, flush=True)

    done = export(str(settings.run), str(settings.out), merge=settings.merge, force=settings.force, say=say)
    if settings.json:
        words = {"directory": str(done.directory), "recipe": done.recipe, "kind": done.kind, "files": done.files}
        print_json("export", words)
    else:
        print(f"Wrote {settings.out}: {', '.join(done.files)}\n\n{done.use}")
    return 0
