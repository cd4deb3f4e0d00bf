"""`stayfinite check` where no person looks on: formats, exit codes, a project file, comments that ignore, `--fix`."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from child_processes import environment
from stayfinite.cli import main
from stayfinite.errors import BadStep, DeviceFault, LoaderFailed, TrainingDiverged, TrainingStopped

T5 = "model_name_or_path: google/flan-t5-large\noutput_dir: o\nlearning_rate: 1e-4  # peak\nwarmup_ratio: 0.1\n"
SICK = T5 + "fp16: true\nbf16: true\n"
HEALTHY = T5 + "bf16: true\n"
HOSTILE = "a,b%:c.yaml"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(SICK)
    (tmp_path / "healthy.yaml").write_text(HEALTHY)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["check", *words])
    return code, *capsys.readouterr()


def test_sarif_names_the_rule_the_line_and_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = check(capsys, "train.yaml", "--format", "sarif")
    log = json.loads(out)
    (run,) = log["runs"]
    (result,) = run["results"]
    assert (code, log["version"]) == (1, "2.1.0")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "SF115"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "train.yaml"
    assert place["region"] == {"startLine": 5, "startColumn": 7, "endColumn": 11}  # `true` of `fp16: true`
    assert check(capsys, "healthy.yaml", "--format", "sarif")[0] == 0


def test_a_fingerprint_survives_a_line_above(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = []
    for text in (SICK, "# a remark\n" + SICK):
        (here / "train.yaml").write_text(text)
        log = json.loads(check(capsys, "train.yaml", "--format", "sarif")[1])
        seen.append(log["runs"][0]["results"][0])
    first, moved = seen
    assert first["locations"] != moved["locations"]
    assert first["partialFingerprints"] == moved["partialFingerprints"]


def test_github_gets_a_command_a_finding_with_everything_escaped(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / HOSTILE).write_text(SICK)
    code, out, _ = check(capsys, HOSTILE, "--format", "github")
    (line,) = out.splitlines()
    assert code == 1
    assert line.startswith("::error file=a%2Cb%25%3Ac.yaml,line=5,endLine=5,col=7,endColumn=10,title=SF115 ")
    assert "%0AFix: " in line
    assert check(capsys, "healthy.yaml", "--format", "github")[:2] == (0, "")


def test_junit_is_xml_whatever_stands_in_the_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "odd.yaml").write_text(SICK + 'lr_scheduler_type: "<&\\x01\\ud800]]>"\n')
    for name, failed in (("odd.yaml", True), ("healthy.yaml", False)):
        _, out, _ = check(capsys, name, "--format", "junit")
        suites = ElementTree.fromstring(out)
        cases = suites.findall(".//testcase")
        assert suites.get("failures") == str(len(suites.findall(".//failure")))
        assert (suites.get("failures") != "0") is failed
        assert suites.get("tests") == str(len(cases))
    assert suites.findall(".//skipped")


def test_findings_stand_in_the_terminal_and_the_rest_only_with_v(capsys: pytest.CaptureFixture[str]) -> None:
    plain = check(capsys, "train.yaml")[1]
    assert "train.yaml:5:7: fp16: True" in plain
    assert " ok " not in plain
    assert " skip " not in plain
    assert " skip " in check(capsys, "train.yaml", "-v")[1]
    assert "Not ready" not in check(capsys, "train.yaml", "-q")[1]
    assert check(capsys, "healthy.yaml", "-q")[:2] == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.yaml"], 1),
        (["train.yaml", "--strict"], 1),
        (["train.yaml", "--warn-only"], 0),
        (["healthy.yaml", "--strict"], 0),
        (["healthy.yaml", "--strict", "--warn-only"], 2),
        (["healthy.yaml", "--write"], 2),
        (["notes.txt", "--each"], 0),
        (["healthy.yaml", "misspelled.yaml", "--each"], 2),
        (["notes.txt", "--each", "--strict"], 1),
    ],
)
def test_exit_codes(words: list[str], expected: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "notes.txt").write_bytes(b"\x00\x01" * 99)
    assert check(capsys, *words)[0] == expected


def test_each_file_by_itself_is_no_run_of_several(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mkdocs.yml").write_text("site_name: x\n")
    code, out, _ = check(capsys, "--each", "train.yaml", "healthy.yaml", "mkdocs.yml", "--format", "json")
    found = json.loads(out)
    assert (code, [each["place"]["path"] for each in found["findings"]]) == (1, ["train.yaml"])


def test_a_comment_ignores_its_line_with_a_reason(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in (
        SICK.replace("fp16: true", "fp16: true  # stayfinite: ignore[SF115] the launcher drops bf16"),
        SICK.replace("fp16: true", "# stayfinite: ignore[both-half-formats] the launcher drops bf16\nfp16: true"),
    ):
        (here / "train.yaml").write_text(text)
        code, out, _ = check(capsys, "train.yaml", "--format", "sarif")
        (result,) = json.loads(out)["runs"][0]["results"]
        assert code == 0
        assert result["suppressions"] == [{"kind": "inSource", "justification": "the launcher drops bf16"}]
    (here / "train.yaml").write_text(SICK + "# stayfinite: ignore[SF115] another line\n")
    assert check(capsys, "train.yaml")[0] == 1


def test_a_script_ignores_by_comments_and_not_by_strings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = "from transformers import TrainingArguments\nargs = TrainingArguments('o', learning_rate=2e-5, {}\n"
    remark = "fp16=True, bf16=True)  # stayfinite: ignore[SF115] a test of the error"
    quoted = "fp16=True, bf16=True); x = '# stayfinite: ignore[SF115] a text'"
    for end, expected in ((remark, 0), (quoted, 1)):
        (here / "train.py").write_text(call.format(end))
        assert check(capsys, "train.py")[0] == expected


@pytest.mark.parametrize(
    ("comment", "says"),
    [
        ("ignore[SF115]", "SF115 ignored without a reason"),
        ("ignore", "ignore without a code"),
        ("ignore[SF999] because", "no rule 'SF999'"),
    ],
)
def test_an_ignore_that_says_too_little_is_an_error_with_its_place(
    comment: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "train.yaml").write_text(SICK.replace("fp16: true", f"fp16: true  # stayfinite: {comment}"))
    for words in ((), ("--each",)):
        code, _, err = check(capsys, "train.yaml", *words)
        assert code == 2
        assert f"train.yaml:5: {says}" in err


def test_an_ignore_of_nothing_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "healthy.yaml").write_text(HEALTHY + "seed: 1  # stayfinite: ignore[SF201] long gone\n")
    code, out, _ = check(capsys, "healthy.yaml")
    assert code == 0
    assert "unused: no SF201 here" in out
    assert check(capsys, "healthy.yaml", "--strict")[0] == 1


PROJECT = """
[tool.stayfinite]
paths = ["configs/*.yaml", ["train.yaml"]]
gpu = "A100"
policy = {{ max_vetoes = 64 }}
ignore = {{ {ignore} }}
"""


@pytest.mark.parametrize("name", ["pyproject.toml", "stayfinite.toml"])
def test_the_project_file_is_found_from_below_and_names_what_to_check(
    name: str, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "configs" / "deep").mkdir(parents=True)
    (here / "configs" / "a.yaml").write_text(HEALTHY)
    text = PROJECT.format(ignore='SF115 = "the launcher drops one"')
    (here / name).write_text(text.replace("[tool.stayfinite]", "") if name == "stayfinite.toml" else text)
    monkeypatch.chdir(here / "configs" / "deep")
    code, out, _ = check(capsys, "--format", "json")
    found = json.loads(out)
    assert (code, found["findings"]) == (0, [])
    assert found["banner"]["GPU"].startswith("A100")
    (ignored,) = found["ignored"]
    assert (ignored["reason"], ignored["where"]) == ("the launcher drops one", "project file")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ignor = {}", "unknown key 'ignor'\n  fix: did you mean 'ignore'?"),
        ("ignore = { SF115 = '' }", "SF115 ignored without a reason"),
        ("ignore = ['SF115']", "codes, each with a reason"),
        ("ignore = { SF11 = 'x' }", "no rule 'SF11'"),
        ("gpu = 'H10'", "did you mean H100"),
        ("gpu = 3", "gpu = '3' is not understood"),
        ("paths = 'train.yaml'", "give a list of files"),
        ("paths = ['none/*.yaml']", "matches no file"),
        ("policy = 'stric'", "did you mean 'strict'"),
        ("policy = { max_veto = 3 }", "did you mean 'max_vetoes'"),
        ("policy = { max_vetoes = -1 }", "max_vetoes"),
        ("paths = [", "is not valid TOML"),
    ],
)
def test_a_project_file_that_cannot_be_meant_is_refused(
    text: str, says: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "stayfinite.toml").write_text(text)
    code, out, err = check(capsys, "healthy.yaml")
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert says in err


def test_a_path_of_the_project_that_is_not_there_is_told_as_typed_and_as_json(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "stayfinite.toml").write_text('paths = ["healthy.yaml", "gone.yaml"]')
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    code, out, err = check(capsys, "--format", "json")
    assert (code, json.loads(out)["error"]) == (2, "no such file: ../gone.yaml")
    assert "no such file: ../gone.yaml" in err


def test_a_pyproject_of_others_changes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\ndependencies = ['stayfinite']\n")
    assert check(capsys, "healthy.yaml")[0] == 0


FIXABLE = {
    "both.yaml": (SICK, "fp16: true", "fp16: false"),
    "family.json": (
        '{"model_name_or_path": "google/mt5-small",\r\n  "learning_rate": 1e-4,\r\n  "fp16": true}',
        '"fp16": true',
        '"bf16": true',
    ),
    "accelerate.yaml": (
        "model_name_or_path: google/mt5-small\nlearning_rate: 1e-4\nmixed_precision: 'fp16' # mixed\n",
        "'fp16' # mixed",
        "'bf16' # mixed",
    ),
    "slip.yaml": (HEALTHY + "num_train_epoch: 3\n", "num_train_epoch:", "num_train_epochs:"),
    "best.toml": (
        "output_dir = 'o'\nlearning_rate = 2e-5\nload_best_model_at_end = true\neval_strategy = 'epoch'\n{}".format(
            "num_train_epochs = 3\nsave_strategy = 'steps' # hourly\n"
        ),
        "'steps' # hourly",
        "'epoch' # hourly",
    ),
}


@pytest.mark.parametrize("name", FIXABLE)
def test_fix_changes_one_value_and_nothing_else(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, old, new = FIXABLE[name]
    path = here / name
    path.write_bytes(text.encode())
    path.chmod(0o640)
    code, out, _ = check(capsys, name, "--gpu", "A100", "--fix")
    assert code == 1
    assert path.read_bytes() == text.encode()
    assert f"+++ b/{name}" in out
    assert "Nothing written" in out
    assert check(capsys, name, "--gpu", "A100", "--fix", "--write")[0] == 0
    assert path.read_bytes() == text.replace(old, new).encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(each.name for each in here.iterdir()) == sorted({name, "train.yaml", "healthy.yaml"})
    assert check(capsys, name, "--gpu", "A100")[0] == 0


def test_fix_shows_a_diff_that_patch_takes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = check(capsys, "train.yaml", "--gpu", "A100", "--fix")
    subprocess.run(["git", "apply", "-"], input=out.partition("Safe changes")[0].encode(), check=True, cwd=here)
    assert (here / "train.yaml").read_text() == SICK.replace("fp16: true", "fp16: false")


def test_what_is_not_safe_is_left_and_said(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "rate.yaml").write_text(HEALTHY.replace("1e-4", "1e-1"))
    (here / "train.py").write_text(
        "from transformers import TrainingArguments\n"
        "args = TrainingArguments('o', learning_rate=2e-5, fp16=True, bf16=True)\n"
    )
    for words, says in (
        (["rate.yaml"], "SF201 lr-too-high: it needs a decision"),
        (["train.yaml"], "SF115 both-half-formats: it needs a decision"),  # which card is not known
        (["train.py", "--gpu", "A100"], "train.py is not a config file"),
        (["python train.py --fp16 --bf16 --learning_rate 2e-5", "--gpu", "A100"], "not fixed"),
    ):
        code, out, _ = check(capsys, *words, "--fix", "--write")
        assert code == 1
        assert says in out
        assert "Nothing to write" in out


def test_a_link_stays_a_link(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "link.yaml").symlink_to("train.yaml")
    assert check(capsys, "link.yaml", "--gpu", "A100", "--fix", "--write")[0] == 0
    assert (here / "link.yaml").is_symlink()
    assert "fp16: false" in (here / "train.yaml").read_text()


def test_the_page_of_exit_codes_is_true() -> None:
    page = (Path(__file__).parents[2] / "docs" / "exit_codes.md").read_text()
    for error in (TrainingStopped, TrainingDiverged, BadStep, LoaderFailed, DeviceFault):
        (row,) = [line for line in page.splitlines() if f"`{error.__name__}`" in line]
        assert row.startswith(f"| {error.exit_code} |")


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "--strict"])
def test_the_action_annotates_and_writes_sarif(more: str, here: Path) -> None:
    steps = yaml.safe_load((Path(__file__).parents[2] / "action.yml").read_text())["runs"]["steps"]
    tool = here / "bin" / "stayfinite"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stayfinite "$@"\n')
    tool.chmod(0o755)
    given = {"FILES": "train.yaml healthy.yaml", "EACH": "true", "GPU": "A100", "ARGUMENTS": more, "SARIF": "out.sarif"}
    environ = environment() | given | {"PATH": f"{tool.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", steps[1]["run"]],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=train.yaml,line=5,")
    assert len(json.loads((here / "out.sarif").read_text())["runs"][0]["results"]) == 1
