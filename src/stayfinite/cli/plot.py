"""``stayfinite plot PATH... -o loss.png``: plot the curves of one or several runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from stayfinite.cli.ending import command, print_json
from stayfinite.errors import UsageError
from stayfinite.report.printable import printable


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Plot loss (log scale), gradient norm and learning rate of runs, with bad steps marked."""

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Logs or run directories, one color each."""

    out: Annotated[Path, tyro.conf.arg(aliases=["-o", "--output"])] = Path("loss.png")
    """Output file: png, svg, pdf or html."""

    title: str = ""
    """Title of the plot."""

    json: bool = False
    """Print the plotted data as JSON and nothing else."""


@command(Plot, also=(OSError,))
def run(settings: Plot) -> int:
    """Run the command; 0 if the plot was written, 2 on wrong use."""
    if not settings.paths:
        raise UsageError("name a log or a run directory: stayfinite plot train.log -o loss.png")
    from stayfinite.diagnosis.reading import main_series
    from stayfinite.report.plot import save_plot
    from stayfinite.report.progress import reading_progress

    with reading_progress(quiet=settings.json) as progress:
        runs = [main_series(path, progress) for path in settings.paths]
    save_plot(runs, settings.out, title=settings.title)
    if settings.json:
        drawn = [{"source": run.source, "points": run.points_seen} for run in runs]
        print_json("plot", {"out": str(settings.out), "runs": drawn})
    else:
        names = ", ".join(f"{run.source} ({run.points_seen:,} points)" for run in runs)
        print(printable(f"{settings.out}: {names}"))
    return 0
