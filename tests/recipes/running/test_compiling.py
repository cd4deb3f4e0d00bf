"""Blocks that are compiled for training, and for training alone."""

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import T5Config, T5ForConditionalGeneration

from stayfinite.recipes.running.recording import as_written, compile_blocks
from stayfinite.recipes.seq2seq.models import loss_of

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # the compiler asks
]


def small_t5():
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=32,
        d_model=16,
        d_kv=4,
        d_ff=16,
        num_layers=2,
        num_heads=2,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config).train()


@pytest.fixture
def fresh_compiler():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.slow
def test_compiled_blocks_compute_the_same_for_every_shape_and_keep_their_names():
    plain, compiled = small_t5(), small_t5()
    said = []
    compile_blocks(compiled, said.append, backend="eager")
    assert "4 blocks" in said[0]
    assert plain.state_dict().keys() == compiled.state_dict().keys()
    for number, (rows, source, target) in enumerate([(4, 8, 16), (3, 16, 8), (6, 24, 24), (2, 8, 8)]):
        ids = torch.randint(2, 32, (rows, source))
        batch = {
            "input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.randint(2, 32, (rows, target))
        }  # fmt: skip
        for model in (plain, compiled):
            model.zero_grad()
            loss_of(model, 0.1)(batch).backward()
        for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
        if number == 1:
            kinds = counters["stats"]["unique_graphs"]
    assert kinds == counters["stats"]["unique_graphs"] <= 6, "new shapes are not compiled anew"


@pytest.mark.usefixtures("fresh_compiler")
def test_a_generation_compiles_nothing():
    model = small_t5()
    compile_blocks(model, lambda _: None, backend="eager")
    model.eval()
    with as_written(model), torch.no_grad():
        model.generate(torch.randint(2, 32, (2, 6)), max_new_tokens=4)
    assert counters["stats"]["unique_graphs"] == 0


@pytest.mark.usefixtures("fresh_compiler")
def test_a_model_without_blocks_is_left_as_it_is_and_it_is_said():
    said = []
    compile_blocks(torch.nn.Linear(2, 2), said.append)
    assert "not compiled" in said[0]
