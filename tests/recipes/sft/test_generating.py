from __future__ import annotations

from typing import Any

import pytest
import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.adapters import attach, spare_memory
from stayfinite.recipes.chat.bases import build_base, train_tokenizer
from stayfinite.recipes.chat.evaluating import evaluate, generate
from stayfinite.recipes.chat.prompts import Prompting
from stayfinite.recipes.chat.questions import Question

QUESTIONS = [
    "Express 413 knots in metres per second.",
    "5 g in kg?",
    "How many pounds are 95.9 kilograms, if you please?",
    "Convert 9770 feet.",
]


@pytest.fixture(scope="module")
def prompting() -> Prompting:
    return Prompting(tokenizer=train_tokenizer(QUESTIONS), system="Answer.")


@pytest.fixture(scope="module")
def model(prompting: Prompting) -> Any:
    """A Llama with an adapter that says something, and with everything on that training has on."""
    torch.manual_seed(0)
    model = attach(build_base("tiny", prompting.tokenizer).model, rank=4, alpha=8.0, dropout=0.1, head=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2)
    spare_memory(model)
    return model.train()


def test_an_answer_is_the_same_alone_and_in_a_padded_batch(model: Any, prompting: Prompting) -> None:
    assert len({len(prompting.prompt(question)) for question in QUESTIONS}) == len(QUESTIONS)  # so that it is padded
    alone = [generate(model, prompting, [question], new_tokens=12)[0] for question in QUESTIONS]
    assert generate(model, prompting, QUESTIONS, new_tokens=12) == alone
    assert len(set(alone)) == len(alone)  # else it would prove nothing
    assert model.training


def test_an_answer_is_what_the_model_says_token_by_token(model: Any, prompting: Prompting) -> None:
    model.eval()
    ids = prompting.prompt(QUESTIONS[0])
    given = len(ids)
    with torch.no_grad():
        for _ in range(12):
            ids.append(int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
    model.train()
    said = ids[given:]
    said = said[: said.index(prompting.end)] if prompting.end in said else said
    (text,) = generate(model, prompting, QUESTIONS[:1], new_tokens=12)
    assert text == prompting.tokenizer.decode(said, skip_special_tokens=True)


def test_room_for_a_long_answer_does_not_cost_the_question(model: Any, prompting: Prompting) -> None:
    # As in a row of training: question and right answer fit, though not with all that might be said.
    limit = max(len(prompting.prompt(question)) for question in QUESTIONS) + 8
    whole = generate(model, prompting, QUESTIONS, new_tokens=limit - 4)
    assert generate(model, prompting, QUESTIONS, new_tokens=limit - 4, limit=limit) == whole


def test_a_model_is_not_asked_beyond_its_last_place(
    model: Any, prompting: Prompting, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "Convert, " * 40 + "3 km to m."
    monkeypatch.setattr(model.config, "max_position_embeddings", 64)
    kept = prompting.prompt(long, 64 - 12)
    assert len(kept) <= 64 - 12
    assert generate(model, prompting, [long], new_tokens=12) == generate(
        model, prompting, [long], new_tokens=12, limit=64 - 12
    )
    with pytest.raises(UsageError, match="no room for the question"):
        generate(model, prompting, [long], new_tokens=60)


def test_an_evaluation_sees_whole_questions(model: Any, prompting: Prompting) -> None:
    questions = [Question(text=text, answer="1") for text in QUESTIONS]
    limit = max(row.length for row in prompting.examples(questions, 512))
    found = evaluate(model, prompting, questions, new_tokens=limit, limit=limit, say=lambda _: None)
    assert found.texts == generate(model, prompting, QUESTIONS, new_tokens=limit)
