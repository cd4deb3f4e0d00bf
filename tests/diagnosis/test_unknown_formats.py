"""A verdict needs no known format: lines that repeat with other numbers are read as columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from odd_logs import losses_and_norms, odd_log
from stayfinite import diagnose

SEEDS = range(24)


@pytest.mark.parametrize("course", ["nan", "inf", "explodes", "nan at once"])
def test_a_sick_run_is_called_sick_in_formats_that_no_reader_was_written_for(tmp_path: Path, course: str) -> None:
    missed = {}
    for seed in SEEDS:
        log = tmp_path / f"{seed}.log"
        log.write_text(odd_log(seed, losses_and_norms(seed, course)))
        if (verdict := diagnose(log).verdict) != "sick":
            missed[seed] = verdict
    assert not missed


def test_a_healthy_run_is_called_healthy_in_the_same_formats(tmp_path: Path) -> None:
    wrong = {}
    for seed in SEEDS:
        log = tmp_path / f"{seed}.log"
        log.write_text(odd_log(seed, losses_and_norms(seed, "healthy")))
        if (verdict := diagnose(log).verdict) != "healthy":
            wrong[seed] = verdict
    assert not wrong


LOGS = {
    "an arrow": ("[{step}/5000] obj -> {loss:.5g}   (gn {norm:.3g})", ""),
    "a heading in bars": (
        "| {step} | {loss:.4f} | {norm:.4f} | 1.0e-4 |",
        "| it | L | gn | eta |\n|---|---|---|---|\n",
    ),
    "German, with decimal commas": ("Schritt {step}: Verlust {comma} Gradientennorm {norm:.2f}", ""),
    "parts and their sum": ("E001 B{step:05d} | box {third:.3f} cls {third:.3f} dfl {third:.3f} | total {sum:.3f}", ""),
    "nested JSON": ('{{"iter": {step}, "train": {{"losses": {{"mlm": {third}, "nsp": {third}}}}}}}', ""),
    "equals signs, the first line no heading": ("it={step} train/ce={loss:.4f} |g|={norm:.2f}", ""),
    "two players behind a step": ("{step}: D: {third:.4f} G: {loss:.4f} gp: {norm:.4f}", ""),
}


@pytest.mark.parametrize("course", ["healthy", "explodes"])
@pytest.mark.parametrize("name", LOGS)
def test_columns_are_found_by_what_stands_before_or_above_them(tmp_path: Path, name: str, course: str) -> None:
    line, heading = LOGS[name]
    text = heading
    for step, (loss, norm) in enumerate(losses_and_norms(3, course), 1):
        third = round(loss / 3, 3)
        comma = f"{loss:.4f}".replace(".", ",")
        text += line.format(step=10 * step, loss=loss, norm=norm, third=third, sum=3 * third, comma=comma) + "\n"
    (tmp_path / "train.log").write_text(text)
    assert diagnose(tmp_path / "train.log").verdict == ("healthy" if course == "healthy" else "sick")


def test_chatter_with_numbers_is_no_training(tmp_path: Path) -> None:
    lines = [
        f"worker {i % 8} fetched shard {i} in {0.3 + i * 7 % 13 / 100:.3f} s from bucket-{i % 13}" for i in range(60)
    ]
    (tmp_path / "loader.log").write_text("\n".join(lines))
    assert diagnose(tmp_path / "loader.log").verdict == "unknown"


def test_a_constant_of_unknown_name_is_not_called_healthy(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("\n".join(f"step {i} energy=2.302585" for i in range(40)))
    assert diagnose(tmp_path / "train.log").verdict != "healthy"


def test_rows_without_a_name_are_no_healthy_run_but_their_nan_is_told(tmp_path: Path) -> None:
    rows = [f"{i:4d}  {(-1) ** i * 0.1 * (i % 7):+.4f}  {0.3 * (i % 5):+.4f}" for i in range(40)]
    (tmp_path / "rows.log").write_text("\n".join(rows))
    assert diagnose(tmp_path / "rows.log").verdict == "unknown"
    (tmp_path / "rows.log").write_text("\n".join([*rows, *(f"{i:4d}  nan  nan" for i in range(40, 60))]))
    assert diagnose(tmp_path / "rows.log").verdict == "sick"
