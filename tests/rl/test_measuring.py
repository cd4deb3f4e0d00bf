"""stayfinite.rl: what the signals of post-training are, and that padding has no say in them."""

import json
import math

import pytest
import torch
from torch import nn

from stayfinite import Guard, UsageError, rl


def answers() -> dict[str, torch.Tensor]:
    """Four answers in two groups; the last token of every second one is padding, and NaN."""
    torch.manual_seed(0)
    logprobs = -torch.rand(4, 12)
    mask = torch.ones(4, 12)
    mask[1::2, -1] = 0
    old = logprobs - 0.01
    old[0, 0] = logprobs[0, 0] - math.log(3)
    ref = logprobs + 0.1
    for each in (logprobs, old, ref):
        each[1::2, -1] = math.nan
    return {"logprobs": logprobs, "old_logprobs": old, "ref_logprobs": ref, "mask": mask}


def test_signals_are_what_their_names_say_and_padding_has_no_say():
    tokens = torch.arange(48).reshape(4, 12)
    tokens[3] = 7
    found = rl.signals(
        **answers(), advantages=torch.tensor([1.0, -1.0, 0.0, 0.0]), rewards=torch.tensor([1.0, 0.0, 1.0, 1.0]),
        group_size=2, sampler_logprobs=answers()["old_logprobs"] + 0.5, tokens=tokens, limit=12,
    )  # fmt: skip
    values = {name: value.item() for name, value in found.items()}
    entropy = values.pop("entropy")
    assert 0 < entropy < 1
    assert values == pytest.approx(
        {
            "kl": math.exp(0.1) - 0.1 - 1,
            "ratio_mean": (45 * math.exp(0.01) + 3) / 46,
            "ratio_max": 3.0,
            "clipped": 1 / 46,
            "advantage_mean": 0.0,
            "advantage_std": math.sqrt(0.5),
            "reward": 0.75,
            "equal_groups": 0.5,
            "length": 11.5,
            "cut_off": 0.5,
            "repeats": 0.25,
            "mismatch": 0.5,
            "mismatch_max": 0.5,
        },
        rel=1e-4,
        abs=1e-6,
    )


def test_signals_wait_for_nothing_and_keep_no_graph():
    given = answers()
    given["logprobs"].requires_grad_()
    found = rl.signals(**given)
    assert not any(value.requires_grad for value in found.values())
    assert all(value.dim() == 0 for value in found.values())
    # On the meta device nothing has a value: whoever asks for one fails.
    meta = {name: value.to("meta") for name, value in answers().items()}
    everything = rl.signals(
        **meta, advantages=torch.ones(4, device="meta"), rewards={"right": torch.ones(4, device="meta")}, group_size=2,
        sampler_logprobs=meta["logprobs"], tokens=torch.ones(4, 12, device="meta").long(), limit=12,
    )  # fmt: skip
    assert {"reward/right", "equal_groups", "repeats", "cut_off"} <= set(everything)


def test_an_exploding_ratio_is_a_large_number_and_a_nan_stays_one():
    given = answers()
    given["old_logprobs"][0, 0] = -1e4
    assert 1e8 < rl.signals(**given)["ratio_max"].item() < math.inf
    given["logprobs"][0, 0] = math.nan
    assert math.isnan(rl.signals(**given)["kl"].item())


def test_shapes_that_do_not_fit_are_refused_with_both_of_them():
    with pytest.raises(UsageError, match=r"\[4, 12\] and \[4, 13\]"):
        rl.signals(torch.zeros(4, 12), torch.zeros(4, 13))


def test_signals_of_pairs_and_of_a_value_head():
    found = rl.preference_signals(torch.tensor([-1.0, -3.0]), torch.tensor([-4.0, -4.0]), beta=0.1)
    assert {name: value.item() for name, value in found.items()} == pytest.approx(
        {"chosen_logp": -2.0, "rejected_logp": -4.0, "margin": 0.2}
    )
    returns = torch.tensor([1.0, 2.0, 3.0, math.nan])
    mask = torch.tensor([1, 1, 1, 0])
    perfect = rl.value_signals(returns.clone(), returns, mask)
    useless = rl.value_signals(torch.full((4,), 2.0), returns, mask)
    assert (perfect["value_loss"].item(), perfect["explained_variance"].item()) == (0.0, 1.0)
    assert useless["explained_variance"].item() == pytest.approx(0.0)


@pytest.mark.parametrize("accumulated", [False, True])
def test_signals_ride_with_the_step_of_the_run(tmp_path, accumulated):
    model = nn.Linear(4, 1)
    guard = Guard(model, torch.optim.SGD(model.parameters(), 0.1), run_dir=tmp_path)
    for step in range(3):
        first = {"kl": torch.tensor(float(step)), "ratio_max": 5.0}
        if accumulated:
            guard.backward(model(torch.ones(4)).square().mean() / 2, signals={"kl": step - 1, "ratio_max": 2.0})
            guard.backward(model(torch.ones(4)).square().mean() / 2, signals={"kl": step + 1, "ratio_max": 5.0})
            guard.step()
        else:
            guard.step(model(torch.ones(4)).square().mean(), signals=first)
    guard.close()
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [line["signals"] for line in lines] == [{"kl": float(step), "ratio_max": 5.0} for step in range(3)]
    assert [decision.signals.named["kl"] for decision in guard.decisions] == [0.0, 1.0, 2.0]


def test_a_bad_signal_refuses_no_step_and_one_that_is_no_number_is_refused(tmp_path):
    model = nn.Linear(4, 1)
    guard = Guard(model, torch.optim.SGD(model.parameters(), 0.1), run_dir=tmp_path)
    guard.step(model(torch.ones(4)).square().mean(), signals={"kl": math.nan})
    assert [decision.action for decision in guard.decisions] == ["accept"]
    with pytest.raises(UsageError, match=r"signal 'kl' must be a number, but has shape \[3\]"):
        guard.step(model(torch.ones(4)).square().mean(), signals={"kl": torch.zeros(3)})
