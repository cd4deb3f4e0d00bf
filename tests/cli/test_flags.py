"""Help says what a flag takes, and nothing of how that is written in Python."""

import inspect
from dataclasses import dataclass, make_dataclass

import pytest

from stayfinite.cli import COMMANDS, main
from stayfinite.cli.train import RECIPES
from stayfinite.flags import parsed

ASKED = [*((name,) for name in COMMANDS if name != "train"), *(("train", name) for name in RECIPES)]


@pytest.mark.parametrize("command", ASKED, ids=" ".join)
def test_help_shows_no_python(command, capsys):
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main([*command, "--help"]))
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "usage" in shown.lower()
    assert "\n\n\n" not in shown
    for odd in ("{None}", "default: )", "default: None", "default: False", "[STR [STR"):
        assert odd not in shown


@dataclass(frozen=True)
class Said:
    """A command."""

    first: int = 0
    """Something that takes more words than one line of the source has room for, so that the
    sentence is broken."""


def test_a_default_of_0_is_shown_and_help_is_not_broken_where_the_source_is(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        parsed(Said, ["--help"], "said")
    assert "has room for, so that the sentence is broken. (default: 0)" in capsys.readouterr().out


@dataclass(frozen=True)
class Switches:
    """A command that says what it does in more words than one line of a narrow terminal has room for."""

    quick: bool = False
    """Off by default."""

    write: bool = True
    """On by default."""


def test_help_is_wrapped_between_words_and_a_switch_that_is_off_has_no_opposite(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        parsed(Switches, ["--help"], "switches", hint="One more paragraph.", pairs=False)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 60
    assert {"terminal", "words", "One", "--quick", "--no-write"} <= set(shown.replace(",", " ").split())
    assert "--no-quick" not in shown


def test_help_works_where_the_package_has_no_source(monkeypatch):
    def missing(_):
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", missing)
    with pytest.raises(SystemExit) as ended:
        parsed(make_dataclass("Settings", [("rate", float, 0.1)]), ["--help"], "program")
    assert ended.value.code == 0


def test_a_usage_of_several_lines_is_indented_below_its_first(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        raise SystemExit(main(["diagnose", "--help"]))
    first, *rest = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert first.startswith("usage: stayfinite diagnose [-h]")
    assert rest
    assert all(line.startswith(" " * 7) for line in rest)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "--memory", "t5-small", "--batch", "abc"], "--batch: expected a whole number, not 'abc'"),
        (["check", "--memory", "t5-small", "--batch", "1.5"], "--batch: expected a whole number, not '1.5'"),
        (["run", "--pause", "soon", "--", "true"], "--pause: expected a number, not 'soon'"),
        (["check", "--precision", "int8"], "--precision: expected fp32, bf16, fp16 or pure-bf16, not 'int8'"),
        (["check", "--format", "xml"], "--format: expected text, json, sarif, github or junit, not 'xml'"),
    ],
)
def test_a_wrong_value_is_answered_with_what_the_flag_takes(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(words))
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"stayfinite {words[0]}: {said}\n  fix: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("doctor --minutes abc x.py", "--minutes: expected a number, not 'abc'"),
        ("doctor --ptach x.diff nan1.py", "no flag --ptach; did you mean --patch?"),
        ("run nosuchcmd", "put -- before the command: stayfinite run -- nosuchcmd"),
        ("run --restarts 3 ls -l", "put -- before the command: stayfinite run -- ls -l"),
        ("version", "Did you mean '--version'?"),
    ],
)
def test_a_slip_on_the_command_line_is_told_in_one_line_with_what_was_meant(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(words.split()))
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "NoneType" not in shown
