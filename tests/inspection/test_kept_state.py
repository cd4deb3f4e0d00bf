"""Preflight leaves a training as it found it, to the last bit."""

import random
import warnings

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from inspection.healthy_setups import NAMED, OTHERS
from inspection.planted import batch, cross_entropy, net
from quick_ones import quick_ones
from stayfinite import preflight
from stayfinite.inspection.bench.keeping import capture_switches
from stayfinite.state.rng import capture_rng


def bits(value):
    """A value with all that is in it, so that equal means equal to the last bit, and the same tensors."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        return (
            id(value), str(value.dtype), tuple(value.shape), value.requires_grad,
            plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
            None if value.grad_fn is not None or value.grad is None else bits(value.grad),
        )  # fmt: skip
    if isinstance(value, dict):
        return {key if isinstance(key, str | int) else id(key): bits(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [bits(each) for each in value]
    if isinstance(value, int | float | str | bool | bytes | type(None)):
        return value
    return type(value).__name__


def everything(model, optimizer, scaler=None):
    hooks = [name for name in vars(nn.Module()) if "hooks" in name]
    return {
        "parameters": bits(dict(model.named_parameters())),
        "buffers": bits(dict(model.named_buffers())),
        "modes": [module.training for module in model.modules()],
        "hooks": [[len(getattr(module, name)) for name in hooks] for module in model.modules()],
        "own": [{k: bits(v) for k, v in vars(m).items() if not k.startswith("_")} for m in model.modules()],
        "state": bits(dict(optimizer.state)),
        "groups": bits(optimizer.param_groups),
        "optimizer": {k: bits(v) for k, v in vars(optimizer).items() if isinstance(v, int | float | str | bool)},
        "scaler": None if scaler is None else bits(vars(scaler)),
        "rng": capture_rng(),
        "switches": capture_switches(),
    }


def stir():
    """Generators that stand somewhere."""
    random.seed(3)
    numpy.random.seed(3)
    torch.manual_seed(3)


@pytest.mark.parametrize("name", quick_ones([*NAMED, *OTHERS], "T5", "LLaMA+LoRA", "UNet", *OTHERS))
@pytest.mark.parametrize("trained", quick_ones([False, True], True))
def test_a_look_changes_no_bit(name, trained):
    stir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        setup = (NAMED | OTHERS)[name]()
        if trained:
            for _ in range(2):
                loss = setup.model(**setup.batch).loss if setup.forward is None else setup.forward(setup.batch)
                loss.backward()
                setup.optimizer.step()
        before, given = everything(setup.model, setup.optimizer), bits(setup.batch)
        preflight(setup.model, setup.optimizer, setup.batch, setup.forward, steps=2)
        assert everything(setup.model, setup.optimizer) == before
        assert bits(setup.batch) == given


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "fused": lambda params: torch.optim.AdamW(params, lr=1e-3, fused=True),
    "amsgrad": lambda params: torch.optim.Adam(params, lr=torch.tensor(1e-3), amsgrad=True),
    "adafactor": lambda params: torch.optim.Adafactor(params, lr=1e-2),
    "rprop": lambda params: torch.optim.Rprop(params, lr=1e-3),
    "lbfgs": lambda params: torch.optim.LBFGS(params, lr=0.1),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("stepped", [False, True])
def test_every_optimizer_is_left_as_it_was(kind, stepped):
    stir()
    model = net()
    optimizer = OPTIMIZERS[kind](model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    cross_entropy(model)(batch()).backward()
    if stepped:
        optimizer.step(lambda: cross_entropy(model)(batch()) if kind == "lbfgs" else None)
    before, plan = everything(model, optimizer), dict(scheduler.state_dict())
    preflight(model, optimizer, batch(), cross_entropy(model), steps=2)
    assert everything(model, optimizer) == before
    assert scheduler.state_dict() == plan


class Unruly(nn.Module):
    """Does in its forward pass what a model should not."""

    def __init__(self, *, raises: bool) -> None:
        super().__init__()
        self.inner = net()
        self.raises, self.calls, self.last = raises, 0, None
        self.register_buffer("seen", torch.zeros(()))
        self.teacher = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x):
        self.calls += 1
        self.seen += 1
        self.register_buffer("cache", x.detach().clone())
        self.last = x
        self.teacher.data.mul_(0.9)
        self.inner.head.requires_grad_(False)
        self.inner.register_forward_hook(lambda *_: None)
        self.inner.eval()
        random.random()
        numpy.random.rand()
        torch.rand(1)
        torch.set_grad_enabled(False)
        torch.set_autocast_enabled("cpu", True)
        torch.set_default_dtype(torch.float64)
        if self.raises:
            raise KeyError("no such thing")
        return self.inner(x)


@pytest.mark.parametrize("raises", [False, True])
def test_what_an_unruly_model_does_to_itself_and_the_process_is_undone(raises):
    stir()
    model = Unruly(raises=raises)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    before = everything(model, optimizer)
    try:
        found = preflight(model, optimizer, batch(), cross_entropy(model), steps=2)
        after = everything(model, optimizer)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.set_autocast_enabled("cpu", False)
    assert found
    assert after == before


def test_a_probe_that_fails_is_a_line_that_says_so_and_leaves_no_trace(monkeypatch):
    from stayfinite.inspection import preflight as preflight_module

    def broken(bench, _notes):
        with torch.no_grad():
            bench.model.head.weight.zero_()
        raise ZeroDivisionError("by hand")

    monkeypatch.setitem(preflight_module.PROBES, "gradients", broken)
    stir()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = everything(model, optimizer)
    found = preflight_module.inspect_training(model, optimizer, batch(), cross_entropy(model), steps=0)
    assert everything(model, optimizer) == before
    line = next(line for line in found.lines if line.group == "Gradients")
    assert line.status == "skip"
    assert "ZeroDivisionError: by hand" in line.seen


def test_a_scaler_is_left_as_it_was():
    stir()
    model = net()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def forward(given):
        with torch.autocast("cpu", torch.float16):
            return F.cross_entropy(model(given["x"]).float(), given["label"])

    scaler.scale(forward(batch())).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    before = everything(model, optimizer, scaler)
    preflight(model, optimizer, batch(), forward, scaler, steps=2)
    assert everything(model, optimizer, scaler) == before


def test_the_generator_of_a_loader_stands_where_it_stood():
    model = net()
    rows = torch.utils.data.TensorDataset(batch()["x"], batch()["label"])
    loader = torch.utils.data.DataLoader(
        rows, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5),
        collate_fn=lambda given: {"x": torch.stack([x for x, _ in given]), "label": torch.stack([y for _, y in given])},
    )  # fmt: skip
    state = loader.generator.get_state()
    preflight(model, torch.optim.SGD(model.parameters(), lr=0.1), batch(), cross_entropy(model), loader=loader)
    assert torch.equal(loader.generator.get_state(), state)
