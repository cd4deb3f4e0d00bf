"""A formula at the edge of its domain."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.failures.steps.record import Training, fault

COUNT, BAD = 8, 5
SINGULAR = "loss-formula-singularity"

Pair = tuple[Tensor, Tensor]


def _adam(model: nn.Module, rate: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=rate)


@fault(SINGULAR)
def probability_of_the_right_class_is_zero() -> Training:
    """-log(p) by hand; one row is so far out that p is 0."""
    model = nn.Linear(6, 3)
    batches = [(torch.randn(10, 6), torch.randint(0, 3, (10,))) for _ in range(COUNT)]
    batches[BAD][0][4] = 400.0

    def forward(batch: Pair) -> Tensor:
        p = model(batch[0]).softmax(-1)
        return -p[torch.arange(len(p)), batch[1]].log().mean()

    # The right class of the row is made the least likely one, whatever the weights are by then.
    with torch.no_grad():
        model.weight[0] -= 1.0
    batches[BAD][1][4] = 0
    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault(SINGULAR)
def the_same_picture_twice_in_a_pair() -> Training:
    """A Euclidean distance of equal embeddings: its derivative is 0/0."""
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8))
    batches = [(torch.randn(10, 6), torch.randn(10, 6)) for _ in range(COUNT)]
    batches[BAD][1][7] = batches[BAD][0][7]

    def forward(batch: Pair) -> Tensor:
        distance = torch.sqrt(((model(batch[0]) - model(batch[1])) ** 2).sum(1))
        return (distance - 1).pow(2).mean()

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault("where-nan-branch", SINGULAR)
def logarithm_in_the_branch_not_taken() -> Training:
    """``where`` picks 0 in forward; the logarithm's derivative comes back in backward."""
    model = nn.Linear(6, 12)
    batches = [(torch.randn(10, 6), torch.ones(10, 1)) for _ in range(COUNT)]
    batches[BAD][1][2] = 0.0

    def forward(batch: Pair) -> Tensor:
        active = torch.exp(model(batch[0])) * batch[1]
        return torch.where(active > 0, active.log(), torch.zeros_like(active)).pow(2).mean()

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault("naive-exp", SINGULAR, "bad-data-row", "unscaled-input")
def rate_of_a_poisson_model() -> Training:
    """exp(score) of one row that is much larger than the others."""
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.weight.fill_(0.3)
    batches = [(torch.rand(12, 4), torch.randint(0, 4, (12,)).float()) for _ in range(COUNT)]
    batches[BAD][0][9] = 120.0

    def forward(batch: Pair) -> Tensor:
        score = model(batch[0]).squeeze(-1)
        return (torch.exp(score) - batch[1] * score).mean()

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault("naive-exp", SINGULAR)
def softmax_without_its_maximum() -> Training:
    """exp(x) / sum(exp(x)) where x reaches 200."""
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 5))
    batches = [(torch.randn(10, 6), torch.randint(0, 5, (10,))) for _ in range(COUNT)]
    with torch.no_grad():
        model[2].bias[3] = 200.0

    def forward(batch: Pair) -> Tensor:
        e = torch.exp(model(batch[0]))
        return F.nll_loss((e / e.sum(1, keepdim=True) + 1e-8).log(), batch[1])

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault(SINGULAR)
def inverse_of_a_saturated_tanh() -> Training:
    """atanh of an action that tanh has rounded to 1, as in policies squashed by tanh."""
    model = nn.Linear(4, 2)
    batches = [torch.randn(12, 4) for _ in range(COUNT)]
    batches[BAD][6] = 60.0

    def forward(batch: Tensor) -> Tensor:
        action = torch.tanh(model(batch))
        raw = torch.atanh(action)
        return (raw.pow(2) + torch.log(1 - action.pow(2) + 1e-6)).mean()

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault(SINGULAR, "norm-eps")
def direction_of_a_zero_vector() -> Training:
    """x / |x| of an embedding that is 0: padding went through a layer without a bias."""
    model = nn.Linear(5, 7, bias=False)
    batches = [(torch.randn(9, 5), F.normalize(torch.randn(9, 7), dim=1)) for _ in range(COUNT)]
    batches[BAD][0][3] = 0.0

    def forward(batch: Pair) -> Tensor:
        out = model(batch[0])
        return (out / out.norm(dim=1, keepdim=True) - batch[1]).pow(2).sum(1).mean()

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault(SINGULAR, "naive-exp")
def sigma_that_rounds_to_zero() -> Training:
    """log(exp(s)) of a Gaussian head with s = -120."""
    model = nn.Linear(4, 2)
    batches = [(torch.randn(10, 4), torch.randn(10)) for _ in range(COUNT)]
    with torch.no_grad():
        model.bias[1] = -120.0

    def forward(batch: Pair) -> Tensor:
        mean, s = model(batch[0]).unbind(-1)
        sigma = torch.exp(s)
        return (torch.log(sigma) + ((batch[1] - mean) / sigma) ** 2 / 2).mean()

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault(SINGULAR, "last-batch-of-one", "norm-eps", "constant-feature")
def advantages_of_one_episode() -> Training:
    """(a - mean) / std where a batch holds a single row: the spread of one is 0/0."""
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    batches = [
        (torch.randn(12, 4), torch.randint(0, 3, (12,)), torch.randn(12)) if at != BAD
        else (torch.randn(1, 4), torch.randint(0, 3, (1,)), torch.randn(1))
        for at in range(COUNT)
    ]  # fmt: skip

    def forward(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        x, action, reward = batch
        advantage = (reward - reward.mean()) / reward.std()
        return -(model(x).log_softmax(-1)[torch.arange(len(x)), action] * advantage).mean()

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault(SINGULAR)
def angle_between_equal_vectors() -> Training:
    """acos(1): its derivative is infinite."""
    model = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(3))
    batches = [torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.3, 0.4, 0.5]]) for _ in range(COUNT)]

    def forward(batch: Tensor) -> Tensor:
        a, b = F.normalize(model(batch), dim=1), F.normalize(batch, dim=1)
        return torch.acos((a * b).sum(1).clamp(-1.0, 1.0)).mean()

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault(SINGULAR)
def fractional_power_at_zero() -> Training:
    """x ** 0.4 has no finite slope at 0."""
    model = nn.Linear(6, 8, bias=False)
    batches = [(torch.randn(10, 6), torch.rand(10)) for _ in range(COUNT)]
    batches[BAD][0][1] = 0.0

    def forward(batch: Pair) -> Tensor:
        return (model(batch[0]).pow(2).sum(1).pow(0.4) - batch[1]).pow(2).mean()

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


@fault("attention-fully-masked-row")
def sentence_of_nothing_but_padding() -> Training:
    """Every key of one row is masked: a softmax over nothing."""
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    head = nn.Linear(16, 3)
    model = nn.ModuleDict({"attention": attention, "head": head})
    batches = []
    for _ in range(COUNT):
        padding = torch.arange(7)[None] >= torch.randint(3, 8, (8, 1))
        batches.append({"x": torch.randn(8, 7, 16), "padding": padding, "y": torch.randint(0, 3, (8,))})
    batches[BAD]["padding"][2] = True

    def forward(batch: dict[str, Tensor]) -> Tensor:
        out, _ = attention(batch["x"], batch["x"], batch["x"], key_padding_mask=batch["padding"])
        return F.cross_entropy(head(out.mean(1)), batch["y"])

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))


class _Reciprocal(torch.autograd.Function):
    """A function with a backward of its own, which forgets about 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0] * x.abs() / x


@fault(SINGULAR)
def backward_of_ones_own_divides_by_zero() -> Training:
    """|x| with x / |x| turned round as its derivative."""
    model = nn.Linear(5, 4, bias=False)
    batches = [torch.randn(9, 5) for _ in range(COUNT)]
    batches[BAD][4] = 0.0

    def forward(batch: Tensor) -> Tensor:
        return (_Reciprocal.apply(model(batch)) - 1).pow(2).mean()  # type: ignore[no-untyped-call]

    return Training(model=model, forward=forward, batches=batches, optimizer=_adam(model))
