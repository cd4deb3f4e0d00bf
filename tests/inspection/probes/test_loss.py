"""The loss: finite, attached, one number, given what it expects, and starting where it should."""

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from inspection.planted import adamw, batch, causes, cross_entropy, net
from stayfinite import preflight


def test_nothing_trainable_is_found():
    model = net()
    optimizer = adamw(model)
    model.requires_grad_(False)
    assert causes(model, optimizer) == ["params-frozen"]


@pytest.mark.parametrize(
    "cut",
    [
        lambda loss: loss.detach(),
        lambda loss: loss.data,
        lambda loss: loss.item(),
        lambda loss: loss.detach().numpy(),
        lambda loss: numpy.float64(loss.item()),
        lambda loss: torch.tensor(loss.item()),
    ],
)
def test_a_loss_that_was_cut_off_is_found(cut):
    model = net()
    assert causes(model, forward=lambda given: cut(cross_entropy(model)(given))) == ["detached-loss"]


def test_the_line_that_cut_the_loss_off_is_named():
    model = net()
    found = preflight(model, adamw(model), batch(), lambda given: cross_entropy(model)(given).detach(), steps=0)
    assert "detach at test_loss.py:" in found[0].where


def test_a_detach_on_the_side_is_fine():
    model = net()

    def forward(given):
        scores = model(given["x"])
        return F.cross_entropy(scores, given["label"]) + 0.1 * scores.detach().abs().mean()

    assert causes(model, forward=forward) == []


def test_a_loss_that_was_cut_off_and_made_to_look_attached_is_found():
    model = net()
    found = causes(model, forward=lambda given: cross_entropy(model)(given).detach().requires_grad_())
    assert found == ["detached-loss"]


def test_a_loss_that_is_not_reduced_is_found():
    model = net()
    forward = lambda given: F.cross_entropy(model(given["x"]), given["label"], reduction="none")  # noqa: E731
    assert causes(model, forward=forward) == ["wrong-reduction"]
    assert causes(model, forward=lambda given: forward(given).mean()) == []


def test_weights_that_are_not_finite_are_found_before_they_spoil_anything():
    model = net()
    with torch.no_grad():
        model.second.weight[3, 3] = float("nan")
    assert causes(model)[0] == "nan-weights"


def test_a_row_with_nan_is_found():
    given = batch()
    given["x"][5, 2] = float("nan")
    assert causes(net(), given=given)[0] == "bad-data-row"


def test_a_formula_at_its_edge_is_found():
    model = net()

    def forward(given):
        distance = (model(given["x"]) * 0).pow(2).sum(1).sqrt().mean()
        return cross_entropy(model)(given) + distance

    assert causes(model, forward=forward)[0] == "loss-formula-singularity"


@pytest.mark.parametrize("label", [5, -1, 17])
def test_a_label_outside_the_classes_is_found(label):
    given = batch()
    given["label"][3] = label
    assert causes(net(), given=given) == ["label-out-of-range"]


def test_ignored_labels_are_fine_unless_all_are():
    given = batch()
    given["label"][:12] = -100
    assert causes(net(), given=given) == []
    given["label"][:] = -100
    assert causes(net(), given=given)[0] == "all-labels-masked"


def test_a_declared_ignore_label_is_fine():
    model, given = net(), batch()
    given["label"][3] = -1
    forward = lambda given: F.cross_entropy(model(given["x"]), given["label"], ignore_index=-1)  # noqa: E731
    assert causes(model, given=given, forward=forward) == []


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, 16)
        self.positions = nn.Embedding(8, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, ids):
        return self.head((self.embed(ids) + self.positions(torch.arange(ids.shape[1]))).mean(1))


def of_tokens(model):
    return lambda given: F.cross_entropy(model(given["ids"]), given["label"])


@pytest.mark.parametrize("bad", [20, 4000, -1])
def test_a_token_outside_the_embedding_is_found_before_it_crashes(bad):
    model = Tokens()
    given = {"ids": torch.randint(0, 20, (16, 8)), "label": torch.arange(16) % 5}
    assert causes(model, given=given, forward=of_tokens(model)) == []
    given["ids"][2, 3] = bad
    found = preflight(model, adamw(model), given, of_tokens(model), steps=0)
    assert [each.cause for each in found] == ["token-id-out-of-range"]
    assert str(bad) in found[0].evidence[0]


def test_a_row_longer_than_the_position_table_is_found():
    model = Tokens()
    given = {"ids": torch.randint(0, 20, (16, 9)), "label": torch.arange(16) % 5}
    assert causes(model, given=given, forward=of_tokens(model)) == ["position-out-of-range"]


def test_probabilities_in_cross_entropy_are_found():
    model = net()
    forward = lambda given: F.cross_entropy(model(given["x"]).softmax(-1), given["label"])  # noqa: E731
    assert causes(model, forward=forward) == ["softmax-before-cross-entropy"]


def test_log_probabilities_in_cross_entropy_change_nothing_and_are_fine():
    model = net()
    forward = lambda given: F.cross_entropy(model(given["x"]).log_softmax(-1), given["label"])  # noqa: E731
    assert causes(model, forward=forward) == []


def test_raw_scores_in_nll_loss_are_found_and_log_probabilities_are_fine():
    model = net()
    raw = lambda given: F.nll_loss(model(given["x"]), given["label"])  # noqa: E731
    right = lambda given: F.nll_loss(model(given["x"]).log_softmax(-1), given["label"])  # noqa: E731
    assert causes(model, forward=raw) == ["probability-loss-on-logits"]
    assert causes(model, forward=right) == []


def test_a_softmax_over_the_batch_is_found():
    model = net()
    wrong = lambda given: F.nll_loss(model(given["x"]).log_softmax(0), given["label"])  # noqa: E731
    assert causes(model, forward=wrong)[0] == "softmax-axis"


def binary(model, loss, squash):
    return lambda given: loss(squash(model(given["x"])[:, 0] + model(given["x"])[:, 1:].mean()), given["yes"])


@pytest.mark.parametrize(
    ("loss", "squash", "cause"),
    [
        (F.binary_cross_entropy, torch.sigmoid, []),
        (F.binary_cross_entropy_with_logits, lambda x: x, []),
        (F.binary_cross_entropy, lambda x: x, ["probability-loss-on-logits"]),
        (F.binary_cross_entropy_with_logits, torch.sigmoid, ["softmax-before-cross-entropy"]),
    ],
)
def test_binary_losses_are_given_what_they_expect(loss, squash, cause):
    model = net()
    given = {"x": batch()["x"], "yes": (torch.arange(16) % 2).float()}
    assert causes(model, given=given, forward=binary(model, loss, squash)) == cause


def test_a_binary_target_of_two_is_found():
    model = net()
    given = {"x": batch()["x"], "yes": (torch.arange(16) % 3).float()}
    forward = binary(model, F.binary_cross_entropy_with_logits, lambda x: x)
    assert causes(model, given=given, forward=forward) == ["label-out-of-range"]


def regression(compare):
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 1))
    given = {"x": batch()["x"], "y": batch()["x"].mean(1)}
    return causes(model, given=given, forward=lambda given: compare(model(given["x"]), given["y"]))


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_a_column_compared_with_a_row_is_found():
    assert regression(F.mse_loss) == ["loss-broadcast"]
    assert regression(lambda out, y: (out - y).pow(2).mean()) == ["loss-broadcast"]
    assert regression(lambda out, y: (y - out).abs().mean()) == ["loss-broadcast"]


def test_columns_compared_with_columns_are_fine():
    assert regression(lambda out, y: F.mse_loss(out.squeeze(-1), y)) == []
    assert regression(lambda out, y: (out - y[:, None]).pow(2).mean()) == []


def test_a_first_loss_far_above_ln_classes_is_found():
    model = net()
    with torch.no_grad():
        model.head.weight *= 200
    assert causes(model) == ["bad-initial-loss"]


def test_a_first_loss_below_ln_classes_is_that_of_a_trained_model_and_fine():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(200):
        optimizer.zero_grad()
        loss = cross_entropy(model)(batch())
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.3
    assert causes(model, optimizer) == []


def test_an_error_in_the_forward_pass_is_a_finding_and_no_crash():
    model = net()
    given = {"x": torch.randn(16, 7), "label": torch.arange(16) % 5}
    found = preflight(model, adamw(model), given, cross_entropy(model), steps=0)
    assert found[-1].cause == "step-fails" or found[0].cause == "step-fails"
    assert "cannot be multiplied" in " ".join(found[0].evidence)


def test_a_loss_with_its_sign_turned_is_found():
    model = net()
    assert causes(model, forward=lambda given: -cross_entropy(model)(given)) == ["flipped-sign"]


def test_a_reward_that_is_maximised_is_fine():
    model = net()

    def forward(given):
        chosen = model(given["x"]).log_softmax(-1).gather(1, given["label"][:, None])
        return -(chosen.squeeze(1) * torch.linspace(-1, 1, 16)).mean()

    assert causes(model, forward=forward) == []


def test_an_input_that_is_not_scaled_is_found_unless_the_model_scales_it():
    given = batch()
    given["x"] = given["x"] * 60 + 1500
    assert "unscaled-input" in causes(net(), given=given)
    assert causes(nn.Sequential(nn.BatchNorm1d(12), net()), given=given) == []


def test_a_batch_without_rows_is_found():
    assert causes(net(), given={name: item[:0] for name, item in batch().items()})[0] == "empty-batch"


def test_a_distance_that_an_optimizer_climbs_is_found():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, maximize=True)
    assert causes(model, optimizer)[0] == "flipped-sign"


def test_the_place_of_a_finding_is_never_the_line_that_asks_for_it():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=8, patch_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        num_labels=3,
    )  # fmt: skip
    model = ViTForImageClassification(config).train()
    given = {"pixel_values": torch.randn(2, 3, 8, 8), "labels": torch.tensor([1, 3])}
    found = preflight(model, adamw(model), given)
    assert found[0].cause == "label-out-of-range"
    assert "test_loss.py" not in found[0].where


def test_gpt2s_table_of_positions_is_known_as_one():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=2, n_positions=6, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).train()
    tokens = torch.arange(8).expand(2, 8)
    found = preflight(model, adamw(model), {"input_ids": tokens, "labels": tokens})
    assert found[0].cause == "position-out-of-range"


def test_a_loss_that_is_not_finite_is_not_blamed_on_the_input():
    model = net()
    found = causes(model, forward=lambda given: -model(given["x"]).relu().log().mean())
    assert found == ["loss-formula-singularity"]
