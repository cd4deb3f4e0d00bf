"""Batches of few forms: every row once, the same rows for the same lengths, and the same loss as without."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import T5Config, T5ForConditionalGeneration

from stayfinite.recipes.seq2seq.batching import (
    IGNORED,
    Example,
    FormBuckets,
    FormPadding,
    Padding,
    loading_of,
    rung,
    tokens_in,
)
from stayfinite.recipes.seq2seq.models import loss_of

lengths = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=200)


@given(st.integers(1, 100_000))
def test_a_rung_is_the_next_of_few_lengths(length):
    assert length <= rung(length) <= max(8, 2 * length)
    assert rung(rung(length)) == rung(length)
    assert rung(length) % 8 == 0


def test_up_to_a_thousand_tokens_there_are_fourteen_lengths():
    rungs = sorted({rung(length) for length in range(1, 1025)})
    assert rungs == [8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]


@given(lengths, st.integers(1, 9), st.none() | st.integers(16, 2000), st.sampled_from([0, 1, 64]))
def test_every_row_comes_once_an_epoch_and_batches_of_one_form_are_of_one_size(rows, size, tokens, spread):
    sampler = FormBuckets(rows, size, tokens=tokens, spread=spread)
    assert sampler.counts(1) == [len(sampler)]
    batches = list(sampler)
    assert sorted(row for batch in batches for row in batch) == list(range(len(rows)))
    pad = FormPadding(0, sampler)
    shapes = set()
    for batch in batches:
        made = pad([Example([3] * rows[row][0], [4] * rows[row][1]) for row in batch])
        assert int(tokens_in(made)) == sum(sum(rows[row]) for row in batch)
        shapes.add((made["input_ids"].shape, made["labels"].shape))
        assert made["attention_mask"].shape == made["input_ids"].shape
        assert made["attention_mask"].any(1).all(), "a row without anything to attend to has no softmax"
        if tokens is not None and len(batch) > 1:
            assert made["input_ids"].numel() + made["labels"].numel() <= tokens
    forms = {(source[1], target[1]) for source, target in shapes}
    assert len(forms) == len(shapes), "rows follow from the lengths"


def test_on_lengths_like_those_of_texts_few_forms_cost_hardly_more_padding():
    chance = torch.Generator().manual_seed(0)
    sources = torch.empty(4000).log_normal_(3.0, 1.0, generator=chance).clamp(2, 256).long()
    targets = (sources * torch.empty(4000).uniform_(0.4, 0.9, generator=chance)).clamp(2, 256).long()
    rows = [Example([3] * int(source), [4] * int(target)) for source, target in zip(sources, targets, strict=True)]

    def computed(*, few_forms):
        found = loading_of(rows, 0, torch.device("cpu"), batch_size=1, tokens=8192, few_forms=few_forms)
        pad = found.padding if few_forms else Padding(pad=0)
        batches = [pad([rows[row] for row in batch]) for batch in found.sampler]
        shapes = {(batch["input_ids"].shape, batch["labels"].shape) for batch in batches}
        return sum(batch["input_ids"].numel() + batch["labels"].numel() for batch in batches), len(shapes)

    few, many = computed(few_forms=True), computed(few_forms=False)
    assert few[1] < 40
    assert few[1] < 0.8 * many[1]
    assert few[0] < 1.1 * many[0]


def test_rows_that_were_added_change_neither_loss_nor_gradients():
    torch.manual_seed(0)
    config = T5Config(vocab_size=32, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, dropout_rate=0.0,
                      decoder_start_token_id=0)  # fmt: skip
    model = T5ForConditionalGeneration(config).train()
    rows = [Example([5, 6, 7, 1], [8, 9, 1]), Example([5, 1], [10, 1]), Example([4] * 10 + [1], [11, 1])]
    sampler = FormBuckets([(len(row.source), len(row.target)) for row in rows], 8)
    found = []
    for batch in (Padding(pad=0)(rows), FormPadding(0, sampler)(rows)):
        model.zero_grad()
        loss = loss_of(model, 0.1)(batch)
        loss.backward()
        found.append([loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())])
    assert batch["labels"].shape == (8, 8)
    assert (batch["labels"][3:] == IGNORED).all()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
