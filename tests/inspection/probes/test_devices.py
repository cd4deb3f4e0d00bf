"""Model, buffers, batch and optimizer state are where they should be, or it is said what is not."""

import torch
from torch import nn

from inspection.planted import adamw, batch, causes, cross_entropy, net
from stayfinite import preflight


def test_everything_on_one_device_is_fine():
    assert causes(net()) == []


def test_a_batch_on_another_device_is_found():
    given = {name: item.to("meta") for name, item in batch().items()}
    assert causes(net(), given=given)[0] == "device-mismatch"


def test_a_batch_that_the_forward_pass_fetches_itself_is_fine():
    model = net()
    values = batch()

    def forward(given):
        return cross_entropy(model)({name: item[given["row"]] for name, item in values.items()})

    assert causes(model, given={"row": torch.arange(16)}, forward=forward) == []


def test_a_buffer_that_was_left_behind_is_found_and_named():
    model = net()
    model.register_buffer("shift", torch.zeros(5, device="meta"))
    found = preflight(model, adamw(model), batch(), lambda given: cross_entropy(model)(given) + model.shift.sum())
    assert found[0].cause == "device-mismatch"
    assert "shift" in found[0].evidence[0]


def test_optimizer_state_on_another_device_than_its_parameter_is_found():
    model = net()
    optimizer = adamw(model)
    cross_entropy(model)(batch()).backward()
    optimizer.step()
    optimizer.zero_grad()
    assert causes(model, optimizer) == []
    state = optimizer.state[model.head.weight]
    state["exp_avg"] = state["exp_avg"].to("meta")
    assert causes(model, optimizer)[0] == "device-mismatch"


def test_a_step_counter_on_the_host_is_fine():
    model = net()
    optimizer = adamw(model)
    cross_entropy(model)(batch()).backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.state[model.head.weight]["step"] = optimizer.state[model.head.weight]["step"].to("meta")
    assert "device-mismatch" not in causes(model, optimizer)


def test_an_optimizer_built_before_the_parameters_were_replaced_is_found():
    model = net()
    optimizer = adamw(model)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(module.weight.detach().clone())
    assert causes(model, optimizer)[0] == "params-not-in-optimizer"
