"""``stayfinite report``: one page from whatever is there, or a sentence that says why not."""

from __future__ import annotations

import io
import json

from command_cost import CODE
from planted_runs import plant_run
from stayfinite.cli.report import run


def test_it_writes_the_page_and_says_what_it_shows(tmp_path, capsys):
    out = tmp_path / "deep" / "page.html"
    assert run([str(plant_run(tmp_path / "first")), "-o", str(out)]) == 0
    assert out.read_text().startswith("<!doctype html>")
    told = capsys.readouterr().out
    assert told.startswith("first: 3 of 120 steps were refused")
    assert "page.html (" in told


def test_json_tells_path_and_facts(tmp_path, capsys):
    (tmp_path / "train.log").write_text("".join(f"step {n} loss {5 / n:.4f}\n" for n in range(1, 60)))
    paths = [str(plant_run(tmp_path / "first", vetoes=())), str(tmp_path / "train.log")]
    assert run([*paths, "-o", str(tmp_path / "page.html"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == (tmp_path / "page.html").stat().st_size
    assert [(each["name"], each["verdict"]) for each in told["runs"]] == [
        ("first", "healthy"),
        ("train.log", "healthy"),
    ]


def test_nothing_to_draw_is_wrong_use(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("nothing was measured here\n")
    for paths in ([], [str(tmp_path / "missing")], [str(tmp_path / "notes.txt")]):
        assert run([*paths, "-o", str(tmp_path / "page.html")]) == 2
        assert capsys.readouterr().err.startswith("stayfinite report: ")
    assert not (tmp_path / "page.html").exists()


def test_a_link_that_leads_in_a_circle_is_wrong_use(tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")
    assert run([str(tmp_path / "loop"), "-o", str(tmp_path / "page.html")]) == 2
    assert "nothing could be read" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_said(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run([str(plant_run(tmp_path / "first")), "-o", str(tmp_path / "file" / "page.html")]) == 2
    assert "file" in capsys.readouterr().err


def test_it_needs_no_torch(tmp_path):
    import subprocess
    import sys

    code = CODE.replace("main(sys.argv[2:])", "from stayfinite.cli.report import run; run(sys.argv[2:])")
    command = [
        sys.executable,
        "-c",
        code,
        "torch numpy matplotlib",
        str(plant_run(tmp_path / "first")),
        "-o",
        str(tmp_path / "p.html"),
    ]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1] == ""


def test_a_config_beside_a_log_tells_causes_apart_as_it_does_for_diagnose(tmp_path, capsys):
    lost = "".join(f"{{'loss': 0.0, 'grad_norm': nan, 'epoch': {place / 10}}}\n" for place in range(20))
    (tmp_path / "train.log").write_text(lost)
    (tmp_path / "mine.json").write_text('{"fp16": true, "model_name_or_path": "t5-small"}')
    (tmp_path / "other.log").write_text(lost)
    (tmp_path / "config.yaml").write_text("fp16: false\nmodel_name_or_path: t5-small\n")
    paths = [str(tmp_path / name) for name in ("train.log", "mine.json", "other.log", "config.yaml")]
    assert run([*paths, "-o", str(tmp_path / "report.html"), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["runs"]
    assert first["causes"][0] == "fp16-overflow-model-family"
    assert (second["name"], "fp16-overflow-model-family" in second["causes"]) == ("other.log", False)
    assert run([paths[0], "--tell", "precision=fp16", "-o", str(tmp_path / "report.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["causes"][0] == "fp16-overflow"


def test_a_log_on_standard_input_is_drawn_with_the_config_beside_it(tmp_path, capsys, monkeypatch):
    log = "".join(f"{{'loss': {2.0 - step / 10}, 'grad_norm': 1.2}}\n" for step in range(5))
    log += "{'loss': 0.0, 'grad_norm': nan}\n" * 3
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log.encode())))
    (tmp_path / "train.yaml").write_text("fp16: true\n")
    assert run(["-", str(tmp_path / "train.yaml"), "-o", str(tmp_path / "report.html"), "--json"]) == 0
    (drawn,) = json.loads(capsys.readouterr().out)["runs"]
    assert (drawn["name"], drawn["verdict"], drawn["causes"][0]) == ("stdin", "sick", "fp16-overflow")


def test_standard_input_without_a_measurement_is_wrong_use(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert run(["-", "-o", str(tmp_path / "report.html")]) == 2
    assert "stdin is empty" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()
