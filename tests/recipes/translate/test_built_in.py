"""The built-in task: made here, always the same, and learned by the program without a single flag."""

import json
import math

import pytest

from stayfinite.recipes.seq2seq.built_in import store_records
from stayfinite.recipes.translate import Translate, settled, train


def test_the_records_are_different_and_always_the_same():
    one, two = store_records(300), store_records(300)
    assert one == two
    assert len({pair.source for pair in one}) == 300
    assert store_records(300, seed=1) != one


def test_numbers_are_composed_in_both_languages():
    texts = {pair.source: pair.target for pair in store_records(3000)}
    pairs = [(source, target) for source, target in texts.items() if "ashu ia " in source]
    assert pairs
    assert all("sixty five" in target for _, target in pairs)


def test_every_sentence_is_one():
    for pair in store_records(500):
        assert pair.target.startswith("the ")
        assert pair.target.endswith(".")
        assert "  " not in pair.source + pair.target
        assert not {" a o", " a a", " an g", " an s"} & {pair.target[at : at + 4] for at in range(len(pair.target))}


@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_without_arguments_it_learns_to_translate(tmp_path):
    result = train(settled(Translate(output_dir=str(tmp_path / "run"))), lambda line: None)
    assert result.last_loss < result.first_loss / 2
    assert result.scores.bleu > 50
    losses = [json.loads(line)["loss"] for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert len(losses) == result.steps
    assert all(math.isfinite(loss) for loss in losses)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["scores"]["bleu"] == result.scores.bleu
    assert (tmp_path / "run" / "best" / "model.safetensors").exists()
