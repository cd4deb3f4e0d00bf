from __future__ import annotations

import io
import json

import pytest
import torch

from stayfinite.cli import main
from stayfinite.cli.generate import Generate, options_of
from stayfinite.errors import UsageError
from stayfinite.recipes import mt5
from stayfinite.recipes.language.trained import Author, find_model
from strict_schemas import strict
from tiny_language import settings


@pytest.fixture(scope="module")
def run(model, texts, tmp_path_factory):
    output = tmp_path_factory.mktemp("asked") / "run"
    mt5.train(settings(texts, model, output, max_steps=2), lambda _: None)
    return output


def test_a_run_directory_stands_for_its_best_model_and_then_for_its_final_one(tmp_path, run, model):
    assert find_model(str(run)) == str(run / "best")
    assert find_model(str(run / "final")) == str(run / "final")
    assert find_model("google/mt5-small") == "google/mt5-small"
    with pytest.raises(UsageError, match="no model in"):
        find_model(str(tmp_path))
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match="has no model yet"):
        find_model(str(tmp_path))
    (tmp_path / "final").symlink_to(run / "final")
    assert find_model(str(tmp_path)) == str(tmp_path / "final")
    with pytest.raises(UsageError, match="is a file"):
        find_model(str(run / "run.json"))


def test_gaps_are_filled_where_they_are_and_a_plain_prompt_is_given_one(run, capsys):
    prompts = ["The town of Velmar", "The best <extra_id_0> are <extra_id_1> made."]
    assert main(["generate", str(run), "--json", "--max-new-tokens", "12", "--prompt", *prompts]) == 0
    out, err = capsys.readouterr()
    strict("generation").validate(json.loads(out))
    plain, gapped = json.loads(out)
    assert plain["prompt"] == prompts[0]
    assert plain["gaps"] == []
    assert "extra_id" not in plain["text"] + gapped["text"]
    assert len(gapped["gaps"]) == 2
    assert gapped["text"].startswith("The best ")
    assert gapped["text"].endswith(" made.")
    assert "is added to a plain prompt" in err


def test_prompts_come_from_a_file_or_from_standard_input(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "prompts.txt").write_text("One <extra_id_0> three.\n\nTwo <extra_id_0>\n", encoding="utf-8")
    assert main(["generate", str(run), "--file", str(tmp_path / "prompts.txt"), "--json"]) == 0
    assert [each["prompt"] for each in json.loads(capsys.readouterr().out)] == [
        "One <extra_id_0> three.",
        "Two <extra_id_0>",
    ]
    (tmp_path / "wide.txt").write_text("Sieben <extra_id_0> zw\u00f6lf\r\n", encoding="utf-16")
    assert main(["generate", str(run), "--file", str(tmp_path / "wide.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["prompt"] == "Sieben <extra_id_0> zw\u00f6lf"
    monkeypatch.setattr("sys.stdin", io.StringIO("Four <extra_id_0> six.\n"))
    assert main(["generate", str(run)]) == 0
    assert capsys.readouterr().out.startswith("Four ")


def test_drawing_is_repeatable_and_gives_as_many_texts_as_asked_for(run, capsys):
    flags = ["generate", str(run), "--prompt", "The <extra_id_0> of", "--json", "--temperature", "2"]
    texts = []
    for seed in ("1", "1", "2"):
        assert main([*flags, "--num-return-sequences", "4", "--seed", seed]) == 0
        texts.append([each["text"] for each in json.loads(capsys.readouterr().out)])
    assert len(texts[0]) == 4
    assert texts[0] == texts[1] != texts[2]


def test_every_option_reaches_the_model():
    asked = Generate(
        model="m", temperature=0.5, top_k=7, top_p=0.9, no_repeat_ngram_size=3, repetition_penalty=1.2, num_beams=2,
        max_new_tokens=9, num_return_sequences=2,
    )  # fmt: skip
    assert options_of(asked) == {
        "max_new_tokens": 9, "num_return_sequences": 2, "num_beams": 2, "no_repeat_ngram_size": 3,
        "repetition_penalty": 1.2, "do_sample": True, "temperature": 0.5, "top_k": 7, "top_p": 0.9,
    }  # fmt: skip
    plain = options_of(Generate(model="m"))
    assert not plain["do_sample"]
    assert "temperature" not in plain


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--temperature", "0"], "--temperature 0.0: expected a number above 0"),
        (["--temperature", "nan"], "--temperature nan"),
        (["--top-p", "1.5"], "--top-p 1.5"),
        (["--num-return-sequences", "3"], "greedy decoding gives one text only"),
        (["--num-return-sequences", "3", "--num-beams", "2", "--temperature", "1"], "needs as many beams"),
        (["--seed", str(2**64)], "--seed 18446744073709551616: expected a number below 2**63"),
        (["--max-new-tokens", "0"], "--max-new-tokens 0: expected a number of at least 1"),
        (["--file", "nowhere.txt"], "cannot read nowhere.txt"),
        (["--prompt", " "], "no prompt"),
        (["--prompt", "a <extra_id_100> b"], "the model has 100 sentinels"),
        (["--device", "quantum"], "unknown device"),
    ],
)
def test_what_cannot_work_is_said_and_the_exit_code_is_2(run, flags, said, capsys):
    prompt = [] if "--prompt" in flags or "--file" in flags else ["--prompt", "The <extra_id_0>"]
    assert main(["generate", str(run), *prompt, *flags]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("tiny", "'tiny' has random weights"),
        ("./nowhere", "cannot load './nowhere': no such directory"),
    ],
)
def test_without_a_trained_model_nothing_is_offered_that_cannot_be_used(named, said, capsys):
    assert main(["generate", named, "--prompt", "some words"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "the --output-dir of a run" in told
    assert "small, medium" not in told


def test_a_model_that_has_learnt_an_answer_gives_it(run, tmp_path):
    """A model is made to prefer one token, so that it is known what stands in the gap."""
    place = tmp_path / "sure"
    place.symlink_to(run / "final")
    author = Author(str(place), device=torch.device("cpu"))
    wanted = author._tokenizer("figs", add_special_tokens=False).input_ids[-1]

    def prefer(module, given, output):
        output.logits[..., wanted] += 1e4
        return output

    author._model.register_forward_hook(prefer)
    (answer,) = author.write("They eat <extra_id_0> here.", {"max_new_tokens": 2})
    piece = author._tokenizer.decode([wanted])
    assert answer.text.startswith("They eat ")
    assert answer.gaps[0].replace(" ", "") == (piece + piece).replace(" ", "")
