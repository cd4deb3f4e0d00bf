"""Forward and backward as CUDA graphs: the gradients of the passes as written, in every form, precision and step.

Where pytest is missing:  PYTHONPATH=src:tests python3 tests/recipes/running/test_recording_on_cuda.py
"""

import json
import math
import tempfile
from pathlib import Path

import torch
from transformers import T5Config, T5ForConditionalGeneration

from on_a_gpu import MARKS, each, run_all
from stayfinite import Guard, Policy
from stayfinite.recipes.running.recording import RecordedLoss
from stayfinite.recipes.seq2seq.models import loss_of

pytestmark = MARKS
SHAPES = [(8, 16, 16), (4, 32, 16), (8, 24, 48), (2, 64, 64)]


class Quiet:
    def print(self, line: object) -> None:
        pass


def complain(line: str) -> None:
    raise AssertionError(line)


def model(dropout: float = 0.0) -> T5ForConditionalGeneration:
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=512, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, dropout_rate=dropout,
        feed_forward_proj="gated-gelu", decoder_start_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config).cuda().train()


def batch(number: int) -> dict[str, torch.Tensor]:
    rows, source, target = SHAPES[number % len(SHAPES)]
    chance = torch.Generator().manual_seed(number)
    ids = torch.randint(2, 512, (rows, source), generator=chance)
    mask = torch.ones_like(ids)
    mask[0, source // 2 :] = 0
    labels = torch.randint(2, 512, (rows, target), generator=chance)
    labels[0, target // 2 :] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


@each("precision", [None, torch.bfloat16, torch.float16])
@each("accumulation", [1, 3])
def test_gradients_are_those_of_the_passes_as_written(precision: torch.dtype | None, accumulation: int) -> None:
    plain, other = model(), model()
    recorded = RecordedLoss(other, loss_of(other, 0.1), complain)
    compute = loss_of(plain, 0.1)
    for number in range(12):
        with torch.autocast("cuda", precision or torch.bfloat16, enabled=precision is not None):
            expected = compute(batch(number))
            with recorded.replaying():
                found = recorded(batch(number))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
        for loss in (expected, found):
            (loss * 0.5).backward()
        if (number + 1) % accumulation == 0:
            for one, two in zip(plain.parameters(), other.parameters(), strict=True):
                assert one.grad is not None
                assert two.grad is not None
                torch.testing.assert_close(two.grad, one.grad, rtol=2e-2, atol=2e-3)
            for each_model in (plain, other):
                torch.nn.utils.clip_grad_norm_(each_model.parameters(), 1.0)
                with torch.no_grad():
                    for parameter in each_model.parameters():
                        parameter.sub_(parameter.grad, alpha=0.01)
                each_model.zero_grad(set_to_none=True)


def test_dropout_is_another_one_at_every_replay_and_the_same_from_the_same_state() -> None:
    net = model(dropout=0.3)
    recorded = RecordedLoss(net, loss_of(net), complain)

    def losses() -> list[float]:
        torch.manual_seed(3)
        found = []
        for _ in range(4):
            with recorded.replaying():
                loss = recorded(batch(0))
            loss.backward()
            found.append(float(loss.detach()))
        return found

    first, again = losses(), losses()
    assert len(set(first)) == 4
    assert first == again, "the recording itself, within the first four, has used no random number"


def test_a_recording_that_breaks_off_is_said_and_training_goes_on_as_written() -> None:
    net, said = model(dropout=0.3), []
    compute = loss_of(net)
    looks = False

    def forward(given: dict[str, torch.Tensor]) -> torch.Tensor:
        loss = compute(given)
        if looks:
            loss.item()
        return loss

    recorded = RecordedLoss(net, forward, said.append)
    losses = []
    for number in range(12):
        looks = number >= 6
        with recorded.replaying():
            loss = recorded(batch(number % 2 if number < 6 else 2 + number % 2))
        loss.backward()
        losses.append(float(loss.detach()))
    assert len(said) == 1
    assert "running eagerly: " in said[0]
    assert "captur" in said[0]
    assert len(set(losses)) == 12, "dropout is drawn anew"
    assert all(map(math.isfinite, losses))
    del loss  # its graph would keep the nodes of the weights on the stream of the steps above
    fresh = RecordedLoss(net, compute, complain)
    with fresh.replaying():
        fresh(batch(0)).backward()
    torch.cuda.empty_cache()


def test_a_guarded_training_learns_refuses_a_bad_step_and_explains_it() -> None:
    net = model(dropout=0.1)
    recorded = RecordedLoss(net, loss_of(net), complain)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    with tempfile.TemporaryDirectory() as folder:
        guard = Guard(
            net, optimizer, max_norm=1.0, policy=Policy(precision="bf16"), run_dir=folder, forward=recorded,
            console=Quiet(),
        )  # fmt: skip
        seen = []
        for number in range(120):
            if number == 90:
                kept = net.shared.weight.detach().clone()
                with torch.no_grad():
                    net.shared.weight[5, 0] = math.nan
                spoilt = batch(0)
                spoilt["input_ids"][1, 1] = 5
                with recorded.replaying():
                    loss = guard.forward(spoilt)
                with torch.no_grad():
                    net.shared.weight.copy_(kept)
            else:
                with recorded.replaying():
                    loss = guard.forward(batch(number % 8))
            guard.step(loss)
            seen.append(loss.detach())
        guard.close()
        steps = [json.loads(line) for line in (Path(folder) / "steps.jsonl").read_text().splitlines()]
    losses = torch.stack(seen).tolist()
    assert math.isnan(losses[90])
    assert [step["step"] for step in steps if step["decision"] == "veto"] == [91]
    assert sum(losses[-8:]) < 0.7 * sum(losses[:8])
    assert all(bool(torch.isfinite(parameter).all()) for parameter in net.parameters())


if __name__ == "__main__":
    run_all(globals())
