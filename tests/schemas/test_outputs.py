"""Every --json output, and every file of a run, follows the schema that `stayfinite schema` prints."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from jsonschema import Draft202012Validator

from guarded_training import GuardedTraining
from planted_runs import an_autopsy, an_incident, plant_run
from run_files import lines_of
from stayfinite.cli import COMMANDS, main
from stayfinite.core.schema_names import PRINTED, WRITTEN, tag
from stayfinite.schemas import schema
from strict_schemas import strict

CLI = Path(__file__).parents[2] / "src/stayfinite/cli"
SICK_LOG = "".join(
    f"step {step} loss {'nan' if step > 5 else 3.0 / step} lr 1e-3 grad_norm 1.0\n" for step in range(1, 31)
)
WELL_LOG = "".join(f"step {step} loss {3 * math.exp(-step / 30) + 0.5:.4f} lr 1e-4\n" for step in range(60))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A directory with something of every kind in it."""
    monkeypatch.chdir(tmp_path)
    Path("sick.log").write_text(SICK_LOG)
    Path("well.log").write_text(WELL_LOG)
    Path("sick.yaml").write_text("fp16: true\nlearning_rate: 5.0\nmodel_name_or_path: google/mt5-small\n")
    Path("well.yaml").write_text("bf16: true\nlearning_rate: 1.0e-4\nmax_grad_norm: 1.0\nwarmup_steps: 100\n")
    torch.save({"weight": torch.ones(3)}, "well.pt")
    torch.save({"weight": torch.tensor([1.0, math.nan])}, "sick.pt")
    plant_run(tmp_path / "run", incident=an_incident(), autopsy=an_autopsy())
    return tmp_path


@pytest.mark.parametrize("name", [*PRINTED, *WRITTEN])
def test_each_schema_is_one_and_says_its_version(name, capsys):
    assert main(["schema", name]) == 0
    found = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(found)
    assert found["title"] == tag(name) == f"stayfinite.{name}/1"


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        ("diagnose sick.log", 1, "diagnosis"), ("diagnose well.log", 0, "diagnosis"), ("diagnose run", 1, "diagnosis"),
        ("diagnose missing.log", 2, "error"), ("diagnose", 2, "error"),
        ("check sick.yaml --gpu V100", 1, "check"), ("check well.yaml", 0, "check"), ("check", 2, "error"),
        ("check --memory t5-small --batch 2", 0, "check"),
        ("diff sick.yaml well.yaml", 1, "diff"), ("diff well.yaml well.yaml", 0, "diff"),
        ("diff well.yaml missing.yaml", 2, "error"),
        ("scan sick.pt", 1, "scan"), ("scan well.pt", 0, "scan"), ("scan missing.pt", 2, "error"),
        ("watch run sick.log --once", 1, "watch"), ("watch missing --once", 2, "error"),
        ("hardware run", 0, "hardware"), ("hardware well.yaml", 2, "error"),
        ("report run -o page.html", 0, "report"), ("report missing -o page.html", 2, "error"),
        ("plot well.log -o loss.svg", 0, "plot"), ("plot missing", 2, "error"),
        ("demo --steps 2 --out demo", 0, "demo"), ("demo --steps 0", 2, "error"),
        ("explain SF101", 0, "rule"), ("explain SF999", 2, "error"),
        ("replay run/incidents/0001", 2, "error"),
        ("doctor missing.py", 2, "error"),
        ("rules", 0, "rules"),
    ],
)  # fmt: skip
def test_what_a_command_prints_follows_its_schema(folder, words, code, name, capsys):
    assert (
        main([*words.split(), "--json"] if not words.startswith("doctor") else ["doctor", "--json", "missing.py"])
        == code
    )
    printed = json.loads(capsys.readouterr().out)
    strict(name).validate(printed)
    if name != "rules":  # a list
        assert printed["schema"] == tag(name)
    if name == "error":
        assert printed["command"] == words.split()[0]
        assert printed["exit_code"] == code


def test_lines_of_tail_and_watch_follow_theirs(folder, capsys):
    assert main(["tail", "sick.log", "--once", "--json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found
    for line in found:
        strict("finding").validate(line)
    assert main(["watch", "run", "--poll", "0.01", "--json"]) in (0, 1)
    for line in capsys.readouterr().out.splitlines():
        strict("status").validate(json.loads(line))


def test_the_files_of_a_guarded_run_follow_theirs(tmp_path):
    run = tmp_path / "run"
    training = GuardedTraining(run)
    training.steps(6)
    training.steps(1, math.nan)
    training.guard.close()
    Draft202012Validator(schema("run")).validate(json.loads((run / "run.json").read_text()))
    assert any(each["decision"] == "veto" for each in lines_of(run / "steps.jsonl"))
    for line in lines_of(run / "steps.jsonl"):
        strict("step").validate(line)
    for line in lines_of(run / "events.jsonl"):
        Draft202012Validator(schema("event")).validate(line)
    incident = run / "incidents/0001"
    Draft202012Validator(schema("incident")).validate(json.loads((incident / "incident.json").read_text()))
    strict("autopsy").validate(json.loads((incident / "autopsy.json").read_text()))


def test_a_schema_that_is_missing_is_told_with_the_nearest_name(capsys):
    assert main(["schema", "diagnosys"]) == 2
    assert "no schema 'diagnosys'\n  fix: stayfinite schema diagnosis" in capsys.readouterr().err
    assert main(["schema"]) == 0
    listed = capsys.readouterr().out.split()
    assert {*PRINTED, *WRITTEN} <= set(listed)


def test_no_command_prints_json_without_the_name_of_its_schema():
    plain = [
        name
        for name in COMMANDS
        if re.search(r"json\.dumps\((?!tagged\(|shown\b|listed\b|schema\(|\[)", (CLI / f"{name}.py").read_text())
    ]
    assert plain == []
