"""Under torchrun an error of all ranks is printed once, and one of a single rank by that rank."""

from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from stayfinite.cli.ending import tell_error
from stayfinite.errors import UsageError
from stayfinite.recipes.running import once
from stayfinite.recipes.settings import read_settings
from stayfinite.recipes.sft import Sft


@pytest.fixture
def torchrun(monkeypatch):
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    for name, value in {
        "MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": "3",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(once, "PATIENCE", timedelta(seconds=0.3))

    def fail(rank, words):
        monkeypatch.setenv("RANK", str(rank))
        return tell_error("train sft", UsageError(words, fix="correct it"), code=2)

    yield fail
    del store  # alive until here


def test_an_error_of_all_ranks_is_printed_by_rank_0_and_all_have_its_exit_code(torchrun, capsys):
    assert [torchrun(rank, "--epochs 0") for rank in range(3)] == [2, 2, 2]
    assert capsys.readouterr().err == "stayfinite train sft: --epochs 0\n  fix: correct it\n"


def test_an_error_of_one_rank_is_printed_by_that_rank(torchrun, capsys):
    assert torchrun(1, "no GPU") == 2
    assert "no GPU" in capsys.readouterr().err
    torchrun(0, "rank 1 failed: no GPU")
    torchrun(1, "no GPU")
    assert capsys.readouterr().err.count("no GPU") == 2


def test_a_rank_whose_store_is_gone_prints(torchrun, capsys, monkeypatch):
    monkeypatch.setenv("MASTER_PORT", "nowhere")
    torchrun(1, "no GPU")
    assert "no GPU" in capsys.readouterr().err


def test_wrong_flags_are_explained_by_rank_0_only(torchrun, capsys, monkeypatch):
    shown = []
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        with pytest.raises(SystemExit, match="2"):
            read_settings(Sft, ["--bogus"], "stayfinite train sft")
        shown.append(capsys.readouterr().err)
    assert "--bogus" in shown[0]
    assert not shown[1]
