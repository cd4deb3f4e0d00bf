"""Help says what a flag takes, and nothing of how that is written in Python."""

import pytest

from stayfinite.cli import COMMANDS, main
from stayfinite.cli.train import RECIPES

ASKED = [*((name,) for name in COMMANDS if name != "train"), *(("train", name) for name in RECIPES)]


@pytest.mark.parametrize("command", ASKED, ids=" ".join)
def test_help_shows_no_python(command, capsys):
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main([*command, "--help"]))
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "usage" in shown.lower()
    for odd in ("{None}", "default: )", "default: None", "default: False", "[STR [STR"):
        assert odd not in shown
