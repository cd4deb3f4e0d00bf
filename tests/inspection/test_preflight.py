"""The function itself: what it takes, what it returns, what it refuses."""

import re

import pytest
import torch
from torch import nn

from inspection.planted import adamw, batch, cross_entropy, net
from stayfinite import preflight
from stayfinite.core.finding import Finding
from stayfinite.errors import LossError, ModelError, OptimizerError, UsageError
from stayfinite.inspection.preflight import inspect_training


class Like(nn.Module):
    """Takes a batch as models of transformers do and returns a loss in some form."""

    def __init__(self, form) -> None:
        super().__init__()
        self.inner, self.form = net(), form

    def forward(self, x, label):
        return self.form(nn.functional.cross_entropy(self.inner(x), label))


class Output:
    def __init__(self, loss) -> None:
        self.loss = loss


@pytest.mark.parametrize(
    "form",
    [lambda loss: loss, lambda loss: {"loss": loss}, lambda loss: (loss, 1), Output],
    ids=["a tensor", "a dict", "a tuple", "an object"],
)
def test_without_a_forward_the_model_is_called_with_the_mapping(form):
    model = Like(form)
    assert preflight(model, adamw(model), batch(), steps=0) == []


def test_without_a_forward_a_tuple_is_refused_with_an_example():
    model = net()
    with pytest.raises(UsageError, match=r"(?s)a batch of type tuple.*forward=lambda batch"):
        preflight(model, adamw(model), tuple(batch().values()))


def test_an_output_without_a_loss_is_refused():
    model = Like(lambda loss: {"logits": loss})
    with pytest.raises(LossError, match="without a loss"):
        preflight(model, adamw(model), batch())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (lambda m: ("model", adamw(m), batch()), ModelError),
        (lambda m: (m, "adam", batch()), OptimizerError),
        (lambda m: (m, adamw(m), batch(), "forward"), UsageError),
        (lambda m: (m, adamw(m), batch(), cross_entropy(m), "scaler"), UsageError),
    ],
)
def test_what_is_no_training_is_refused(arguments, error):
    with pytest.raises(error):
        preflight(*arguments(net()))


def test_a_number_of_steps_that_is_none_is_refused():
    model = net()
    with pytest.raises(UsageError, match="steps=-1"):
        preflight(model, adamw(model), batch(), cross_entropy(model), steps=-1)


def test_a_layer_without_a_shape_is_refused():
    model = nn.Sequential(nn.LazyLinear(5))
    with pytest.raises(ModelError, match="no shape yet"):
        preflight(model, torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), batch(), cross_entropy(model))


def test_findings_are_findings_and_the_gravest_come_first():
    model = net().eval()
    found = preflight(model, torch.optim.SGD(model.head.parameters(), lr=0.0), batch(), cross_entropy(model), steps=0)
    assert all(isinstance(each, Finding) for each in found)
    assert {each.cause for each in found} >= {"wrong-mode", "params-not-in-optimizer", "lr-zero"}
    assert [each.confidence for each in found] == sorted((each.confidence for each in found), reverse=True)


def test_the_banner_says_what_is_launched_and_on_what():
    model = net()
    model.first.requires_grad_(False)
    banner = dict(inspect_training(model, adamw(model), batch(), cross_entropy(model), steps=0).banner)
    assert banner["device"] == "cpu"
    assert f"torch {torch.__version__}" in banner["versions"]
    assert banner["model"].startswith("Net, 725 trainable")
    assert banner["model"].endswith("312 frozen parameters")
    assert banner["dtypes"] == "float32 trainable 725, float32 frozen 312"
    assert banner["batch"] == "x float32[16, 12], label int64[16]"
    assert re.match(r"weights \d.*, gradients \d.*, AdamW \d", banner["memory"])


def test_the_loss_is_computed_on_batches_of_any_form():
    model = net()
    given = [tuple(row) for row in zip(batch()["x"], batch()["label"], strict=True)]

    def forward(rows):
        return cross_entropy(model)(
            {"x": torch.stack([x for x, _ in rows]), "label": torch.stack([y for _, y in rows])}
        )

    assert preflight(model, adamw(model), given, forward, steps=0) == []


def test_two_faults_are_two_findings_though_one_could_explain_the_other():
    model = net()
    model.shift = torch.zeros(5, requires_grad=True)

    def forward(given):
        return nn.functional.cross_entropy(model(given["x"]) + model.shift, given["label"])

    found = preflight(model, torch.optim.SGD(model.head.parameters(), lr=0.1), batch(), forward, steps=0)
    assert [each.cause for each in found] == ["unregistered-module", "params-not-in-optimizer"]


def test_after_an_id_without_a_row_no_other_pass_is_begun():
    """On CUDA the kernel of a second pass would take the process along."""
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Flatten(), torch.nn.Linear(8, 3))
    ids, labels = torch.tensor([[1, 2], [3, 10]]), torch.tensor([0, 1])
    begun = []

    def forward(batch):
        begun.append(batch)
        return torch.nn.functional.cross_entropy(model(batch["ids"]), batch["labels"])

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = preflight(
        model, optimizer, {"ids": ids, "labels": labels}, forward, loader=[{"ids": ids, "labels": labels}]
    )
    assert found[0].cause == "token-id-out-of-range"
    assert len(begun) == 1
