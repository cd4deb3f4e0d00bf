"""Precision on the terminal: a plan, updates lost by 16-bit weights, and a network rescaled for fp16."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stayfinite.report.printable import printable, printable_parts

FORMATS = ("tf32", "bf16", "fp16", "fp8", "fp8-rowwise")
MUCH = 0.5
"""Share of lost updates above which the rule `bf16-lost-updates` fires."""
SHOWN = 8
RANGE = 65504.0


def show_plan(plan: Mapping[str, Any], console: Console, *, every: bool = False) -> None:
    """Print a plan from its plain data.

    Arguments:
        every: show all modules tried in a format, not only those that break.
    """
    plan = printable_parts(plan)
    rows = [row for row in plan["rows"] if row["breaks"] or (every and row["errors"])]
    tried = [kind for kind in FORMATS if any(kind in row["errors"] or kind in row["breaks"] for row in plan["rows"])]
    if rows:
        console.print(_modules(rows, tried))
        console.print()
    else:
        console.print(Text(f"No module breaks in {', '.join(tried)}." if tried else "Nothing multiplies here."))
    for row in rows:
        for kind, why in row["breaks"].items():
            console.print(Text.assemble(f"{row['name']}: ", (kind, "bold"), f" breaks: {why}"))
    console.print()
    console.print(_options(plan["options"]))
    for note in plan["notes"]:
        console.print(Text(note, style="yellow"))
    console.print(Text(f"\n{plan['sentence']}", style="bold"))


def _modules(rows: list[Mapping[str, Any]], tried: list[str]) -> Table:
    columns = ("module", "input", "output", "grad", *tried)
    table = Table(*columns, title="Largest values, and error of each format", title_justify="left", box=None)
    for row in rows:
        sizes = (row["largest"].get(what) for what in ("input", "output", "grad_output"))
        errors = (_error(row, kind) for kind in tried)
        table.add_row(Text(row["name"]), *(_number(size) for size in sizes), *errors)
    return table


def _error(row: Mapping[str, Any], kind: str) -> Text:
    found = row["errors"].get(kind)
    if found is None:
        return Text("breaks" if kind in row["breaks"] else "-", style="red" if kind in row["breaks"] else "dim")
    worst = max(float(found[what]) for what in ("output", "grad_input", "grad_weight"))
    return Text(f"{worst:.1%}" if worst < 10 else "overflow", style="bold red" if kind in row["breaks"] else "")


def _options(options: list[Mapping[str, Any]]) -> Table:
    columns = ("tried", "ms a step", "loss error", "gradient cosine", "kept in fp32", "in fp8", "")
    table = Table(*columns, title="Whole assignments against fp32", title_justify="left", box=None)
    for each in options:
        kinds = list(each["formats"].values())
        eight = sum(kind.startswith("fp8") for kind in kinds)
        ms = "-" if each["ms"] is None else f"{float(each['ms']):.3g}{'' if each['measured'] else ' est.'}"
        name = each["base"] + ("+fp8" if eight else "")
        fits = Text("fits", style="green") if each["fits"] else Text("over the error budget", style="yellow")
        table.add_row(
            name, ms, f"{float(each['loss']):.2g}", f"{float(each['cosine']):.5f}", str(len(kinds) - eight),
            str(eight), fits,
        )  # fmt: skip
    return table


def _number(value: Any) -> str:
    return "-" if value is None else f"{float(value):.3g}"


def show_updates(record: Mapping[str, Any], console: Console) -> None:
    """Print the comparison."""
    table = Table("weights", "bytes", "rounded away", "norm lost", "error", "cosine", "loss", box=None)
    for way in record["ways"]:
        shares = (f"{way[name]:.1%}" for name in ("rounded_away", "norm_lost"))
        far = (f"{way['error']:.3f}", f"{way['cosine']:.4f}", f"{way['loss']:.5g}")
        table.add_row(f"{record['format']}, {way['way']}", str(way["bytes"]), *shares, *far)
    table.add_row("fp32", "4", "", "", "0", "1", f"{record['fp32_loss']:.5g}")
    console.print(table)
    console.print(Text(updates_in_a_line(record), style="bold"), soft_wrap=True)


def updates_in_a_line(record: Mapping[str, Any]) -> str:
    """What to do."""
    ways = {way["way"]: way for way in record["ways"]}
    share = ways["nearest"]["rounded_away"]
    lost = f"{record['steps']} steps: {record['format']} weights without an fp32 copy round {share:.0%} of updates to 0"
    if share <= MUCH:
        return f"{lost}. Training works."
    best = min((way for way in ways.values() if way["way"] != "nearest"), key=lambda way: float(way["error"]))
    return f"{lost}. Keep them in fp32 under autocast; least error here: {best['way']} ({best['error']:.2g})."


def show_rescaled(record: Mapping[str, Any], console: Console, *, out: str | None) -> None:
    """Print the result."""

    def say(line: str, style: str = "") -> None:
        console.print(Text(printable(line), style=style), soft_wrap=True)

    say(f"{record['architecture']}, measured on {record['data']}.")
    table = Table("module", "largest before", "after", "of fp16's range")
    worst = sorted(record["modules"].items(), key=lambda item: -item[1][0])[:SHOWN]
    for module, (before, after) in worst:
        table.add_row(printable(module), f"{before:,.4g}", f"{after:,.4g}", f"{after / RANGE:.2g}")
    console.print(table)
    for change in record["changes"]:
        nearly = ", approximately: the norms' epsilon cannot be rescaled" if change["nearly"] else ""
        say(f"{change['freedom']}: x 2**{change['exponent']} ({change['because']} {change['largest']:.3g}{nearly})")
    if record["changes"]:
        say(
            f"Same function in fp32: logits differ by {record['logits_difference']:.1e}, "
            f"loss by {record['loss_difference']:.1e} (relative)."
        )
        say(
            f"Rounded to 0 in fp16: {record['lost_before']:.2%} of the activations before, {record['lost_after']:.2%} "
            f"after; weights {record['lost_weights_before']:.2%} and {record['lost_weights_after']:.2%}."
        )
    for trial in record["trials"]:
        say(_trial(trial))
    for obstacle in record["obstacles"][:SHOWN]:
        say(f"Obstacle: {obstacle['module']} reaches {obstacle['largest']:.3g}: {obstacle['why']}.", "yellow")
    say(rescaled_in_a_line(record, out), "bold")


def rescaled_in_a_line(record: Mapping[str, Any], out: str | None) -> str:
    """The verdict, and what to do."""
    after = record["largest_after"]
    largest = f"largest activation {after:,.4g}, {after / RANGE:.2g} of fp16's range"
    where = f" Saved to {out}." if out and record["changes"] else ""
    kept = record["keep_in_fp32"]
    more = f" and {len(kept) - SHOWN} more" if len(kept) > SHOWN else ""
    keep = f"Keep in fp32: {', '.join(kept[:SHOWN])}{more}."
    if record["verdict"] == "nothing to do":
        return f"Nothing to do: {largest}."
    if record["verdict"] == "rescaled":
        rates = " Train it with AdamW(matching_groups(model, OUT, lr=...)): rescaled weights need their own rates."
        return f"Rescaled: {largest}.{where}{rates.replace('OUT', repr(out)) if out else ''}"
    if record["verdict"] == "partly":
        return f"Partly rescaled: {largest}.{where} {keep}"
    return f"Not rescaled: {largest}. {keep}"


def _trial(trial: Mapping[str, Any]) -> str:
    what = f"{trial['network']} in {trial['precision']}: {trial['steps']} steps"
    if trial["overflows"]:
        return f"{what}, {trial['overflows']} overflowed in the forward pass."
    search = f", {trial['skipped']} refused while the loss scale was searched" if trial["skipped"] else ""
    end = f", loss {trial['first_loss']:.4g} to {trial['last_loss']:.4g}" if trial["last_loss"] is not None else ""
    return f"{what}{search}{end}."
