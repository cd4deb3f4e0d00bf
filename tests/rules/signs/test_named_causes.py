"""A cause that somebody states in words is a clue; advice, questions and denials are none."""

from __future__ import annotations

import pytest

from rules.example import Example
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import all_rules, rule_of
from stayfinite.rules.signs.named_causes import NAMED

STATED = {
    "wrong-mode": "I found that model.eval() was never called in your validation",
    "resume-state-missing": "the optimizer states were stripped from my checkpoint",
    "lr-too-high": "with a higher learning rate my loop ends in an error",
    "loader-too-slow": "I get almost zero gpu utilization",
    "no-zero-grad": "I forgot optimizer.zero_grad() in my loop",
    "params-not-in-optimizer": "I replaced the head after creating the optimizer",
    "accumulation-unscaled": "our loss is 8 times higher with gradient accumulation",
    "label-imbalance": "my dice is always 0.0 for class 2",
    "where-nan-branch": "my gradient is wrong: one branch is nan and torch.where does not stop it",
    "architecture-mismatch": "I get a size mismatch error with my own classes",
    "metric-hides-failure": "the wrapper hides NaNs of our forecast",
    "softmax-before-cross-entropy": "your head applies a softmax and then CrossEntropyLoss",
    "labels-shuffled": "my labels were shuffled, the pictures were not",
    "labels-not-augmented": "in our loader the masks are not flipped",
    "train-val-overlap": "I see that test pages leaked into the training split",
    "eos-never-learned": "the eos is masked in my labels",
    "truncation": "our answers are silently truncated",
    "workers-alike": "all workers of my loader draw the same random numbers",
    "causal-leak": "my decoder attends to the future",
    "samples-leak": "with packing our tokens attend across documents",
    "dead-units": "most of my neurons are dead units",
    "input-ignored": "the model ignores the image in our test",
    "weights-untied": "after loading my weights are not tied",
    "cleared-before-step": "in your loop zero_grad() is called after backward",
    "step-missing": "my loop runs without calling optimizer.step()",
    "target-out-of-step": "my target network is never updated",
    "reference-moves": "our reference model is also updated",
    "reward-model-constant": "my reward model always returns the same",
    "kl-runaway": "our KL suddenly explodes",
    "entropy-collapse": "my entropy quickly collapses",
    "value-explains-nothing": "my explained_variance stays negative",
    "ratio-explosion": "the ratio suddenly explodes in my PPO",
    "length-hacking": "our responses get longer and longer",
    "dpo-both-fall": "my chosen rewards keep decreasing",
    "scaler-missing": "I trained in fp16 without a GradScaler",
    "splits-scaled-differently": "my test images were not normalized",
    "last-batch-of-one": "in my case the last batch has only 1 row",
    "unregistered-module": "our layers are in a python list of modules",
    "naive-exp": "the exp of my logits overflows",
    "attention-fully-masked-row": "some of our sentences are completely padded",
    "bad-init": "all my weights were initialized to zeros",
    "bad-data-row": "it is caused by missing values in my table",
    "ddp-unused-parameters": "it says that some of my parameters did not contribute to the loss",
    "detached-loss": "I print my loss and its requires_grad is False",
    "unscaled-input": "I feed the raw features into my network",
    "position-out-of-range": "my seq_length is 583 and there are 512 position_ids",
    "lr-schedule-bug": "I changed the maximum number of epochs and resumed",
}


def judged(text: str) -> list[str]:
    return [each.cause for each in rank(Example(text + "\n").facts(), all_rules()) if each.severity != "info"]


def test_every_entry_of_the_table_has_a_sentence_here_and_a_rule() -> None:
    assert set(STATED) == set(NAMED)
    assert all(rule_of(slug).slug == slug for slug in NAMED)


@pytest.mark.parametrize("slug", STATED)
def test_a_cause_that_is_stated_is_found(slug: str) -> None:
    assert judged(STATED[slug])[:1] == [slug]


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("our script goes on without running net.train() when it has validated", "wrong-mode"),
        ("my second run loads the weights, but its scheduler starts over", "resume-state-missing"),
        ("our chat model never learns to stop", "eos-never-learned"),
        ("your collator does not append an EOS", "eos-never-learned"),
        ("I think our encoder can look at the target tokens", "causal-leak"),
    ],
)
def test_a_cause_is_found_in_other_words(text: str, slug: str) -> None:
    assert judged(text)[:1] == [slug]


@pytest.mark.parametrize(
    "text",
    [
        "the model learned to stop in our first run",
        "my scheduler starts with a warmup",
        "I put the model into eval mode and export it",
        "How do I avoid dead neurons?",
        "Do I have to call model.eval() before validation?",
        "my optimizer.step() is called after every fourth backward",
        "I shuffle the data before the split, and the labels match",
        "my last batch has 7 rows",
        "our answers are truncated on purpose",
        "if your masks are not flipped, set a flag in my loader",
        "my softmax and the cross entropy are one function",
        "I have 150 images in my set",
    ],
)
def test_advice_and_questions_name_no_cause(text: str) -> None:
    assert judged(text) == []


def test_a_program_that_speaks_of_itself_names_no_cause() -> None:
    assert judged("masks are not flipped in this mode") == []
