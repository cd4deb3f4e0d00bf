"""``stayfinite report RUN... -o report.html``: write one self-contained page of what happened."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from stayfinite.cli.ending import command, print_json
from stayfinite.errors import UsageError
from stayfinite.report.printable import printable


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write runs as one self-contained HTML file: verdict, findings, curves, layers over time, incidents,
    configuration. Reads run directories, logs, trainer_state.json, TensorBoard; `-` is a log on standard input.
    """

    paths: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run directories or logs; several are overlaid. A config or script belongs to the run before it."""

    out: Annotated[Path, tyro.conf.arg(aliases=["-o", "--output"])] = Path("report.html")
    """Output file; replaced atomically."""

    title: str = ""
    """Title; by default the names of the runs."""

    tell: tuple[str, ...] = ()
    """Facts not in any file, as name=value: precision=fp16 gpu=V100."""

    open: bool = False
    """Open it in the browser."""

    json: bool = False
    """Print path and contents as JSON and nothing else."""


@command(Report, also=(OSError,))
def run(settings: Report) -> int:
    """Run the command; 0 if the page was written, 2 on wrong use."""
    if not settings.paths:
        raise UsageError("name a run directory or a log: stayfinite report runs/first")
    from stayfinite.guard.telling.showing import shown_runs
    from stayfinite.report.page.data import page_data
    from stayfinite.report.page.html import write_page
    from stayfinite.report.progress import reading_progress

    with reading_progress(quiet=settings.json) as progress:
        runs = shown_runs(settings.paths, progress, settings.tell)
    size = write_page(page_data(runs, title=settings.title), settings.out)
    if settings.json:
        told = {"out": str(settings.out), "bytes": size, "runs": [_facts(each) for each in runs]}
        print_json("report", told, ensure_ascii=False)
    else:
        for each in runs:
            print(printable(f"{each['name']}: {each['sentence']}"))
        print(printable(f"{settings.out} ({size / 1024:,.0f} KiB)"))
    if settings.open:
        import webbrowser

        webbrowser.open(settings.out.resolve().as_uri())
    return 0


def _facts(run: dict[str, Any]) -> dict[str, Any]:
    facts = {name: run[name] for name in ("name", "source", "verdict", "sentence")}
    causes = [finding["cause"] for finding in run["findings"] if finding["severity"] != "info"]
    return facts | {"causes": causes, "incidents": len(run["incidents"])}
