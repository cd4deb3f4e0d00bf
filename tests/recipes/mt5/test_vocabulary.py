"""The tokenizer of a run: every rank takes the same way to it, however late it comes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import torch

from stayfinite.recipes import mt5
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq import tokenizers


class Late(Place):
    """A rank that comes when the first has gone on and written its files."""

    def from_first(self, value: Any) -> Any:
        assert value, "by now there is a tokenizer"
        return False

    def together(self, work: Callable[[], Any]) -> Any:
        raise AssertionError("the first rank does not wait here")


def test_a_rank_that_comes_late_does_what_the_first_did_and_not_what_the_files_say_by_then(model, tmp_path):
    shutil.copytree(model, tmp_path / "tokenizer")
    place = Late(device=torch.device("cpu"), rank=1, count=2)
    found = mt5._tokenizer(mt5.Mt5(model_name=str(model)), [], tmp_path / "tokenizer", place)
    assert len(found) >= 200


def test_no_rank_goes_on_to_write_the_tokenizer_while_another_reads_it(model, tmp_path, monkeypatch):
    together = []

    class Watched(Place):
        def together(self, work: Callable[[], Any]) -> Any:
            together.append(True)
            found = work()
            together.clear()
            return found

    shutil.copytree(model, tmp_path / "tokenizer")
    monkeypatch.setattr(tokenizers, "load_tokenizer", lambda _: list(together))
    place = Watched(device=torch.device("cpu"))
    assert mt5._tokenizer(mt5.Mt5(model_name=str(model)), [], tmp_path / "tokenizer", place) == [True]
